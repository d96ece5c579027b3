"""How much a process grows for a moment, as the kernel keeps count of it."""

from __future__ import annotations

import re
from pathlib import Path


class Peak:
    """The height of a process's resident memory from now on; it must be one of ours, on Linux."""

    def __init__(self, process: int) -> None:
        self._folder = Path(f"/proc/{process}")
        (self._folder / "clear_refs").write_text("5")  # the height becomes what it holds now
        self._before = self._bytes("VmRSS")

    def growth_bytes(self) -> int:
        """Tell by how much it was larger at its height than in the beginning."""
        return max(0, self._bytes("VmHWM") - self._before)

    def _bytes(self, name: str) -> int:
        status = (self._folder / "status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        if found is None:
            raise ValueError(f"{self._folder}/status has no {name}.")
        return int(found[1]) * 1024
