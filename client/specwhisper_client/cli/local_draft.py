"""A draft server of one's own, and what starts it."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from specwhisper.rpc.channels import OPEN, Credentials

TARGET_TOKEN = "SPECWHISPER_TARGET_TOKEN"  # no list of processes shows it there


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and how it is reached, and the draft that is to work with it from here.

    Options are those of the draft server.
    """

    target: str
    draft_model: str
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    credentials: Credentials = OPEN

    @property
    def command(self) -> list[str]:
        """Give what starts the draft server."""
        told = ["--target", self.target, "--draft-model", self.draft_model, "--device", self.device]
        told += ["--dtype", self.dtype, "--port", "0", "--log-format", "json"]
        told += ["--threads", str(self.threads)] if self.threads else []
        if (tls := self.credentials.tls) is not None:
            told += ["--target-use-ssl"]
            for flag, value in (
                ("root-cert", tls.roots),
                ("client-cert", tls.certificate),
                ("client-key", tls.key),
                ("server-name", tls.server_name),
            ):
                told += [f"--target-{flag}", str(value)] if value is not None else []
        return [sys.executable, "-m", "specwhisper_draft_server", *told]

    @property
    def environment(self) -> dict[str, str]:
        """Give what its environment has beside ours."""
        token = self.credentials.token
        return {} if token is None else {TARGET_TOKEN: token}
