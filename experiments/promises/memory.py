"""Peak growth of a process's memory, as the kernel counts it."""

from __future__ import annotations

import re
from pathlib import Path


class Peak:
    """The peak of a process's resident memory from now on; Linux, own processes only."""

    def __init__(self, process: int) -> None:
        self._folder = Path(f"/proc/{process}")
        (self._folder / "clear_refs").write_text("5")  # the height becomes what it holds now
        self._before = self._bytes("VmRSS")

    def growth_bytes(self) -> int:
        """Return how much larger the peak was than the start."""
        return max(0, self._bytes("VmHWM") - self._before)

    def _bytes(self, name: str) -> int:
        status = (self._folder / "status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        if found is None:
            raise ValueError(f"{self._folder}/status has no {name}.")
        return int(found[1]) * 1024
