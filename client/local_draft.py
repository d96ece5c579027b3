"""A draft server of one's own, and what starts it."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, and the draft that is to work with it from here; options as the draft server has them."""

    target: str
    draft_model: str
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None

    @property
    def command(self) -> list[str]:
        """Give what starts the draft server."""
        told = ["--target", self.target, "--draft-model", self.draft_model, "--device", self.device]
        told += ["--dtype", self.dtype, "--port", "0", "--log-format", "json"]
        told += ["--threads", str(self.threads)] if self.threads else []
        return [sys.executable, "-m", "draft_server", *told]
