"""Read the fields of a binary file one after the other, little endian."""

from __future__ import annotations

import struct
from pathlib import Path

from specwhisper.model.checkpoints.weights import WeightsFile

BLOCK_BYTES = 1 << 16  # read at a time: many fields are short


class FieldReader:
    """A place in a file, which moves on with each field.

    Raises
    ------
    ValueError : by every method, if the file ends before the field does.
    """

    def __init__(self, path: Path) -> None:
        self.file = WeightsFile(path)
        self.position = 0
        self._block, self._block_start = b"", 0

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self.position >= self.file.size

    def skip(self, num_bytes: int) -> int:
        """Return where the next bytes are, and pass over them."""
        start = self.position
        if start + num_bytes > self.file.size:
            raise ValueError(f"{self.file.path.name} is cut off")
        self.position += num_bytes
        return start

    def take(self, num_bytes: int) -> bytes:
        """Read bytes."""
        offset = self.skip(num_bytes) - self._block_start
        if offset < 0 or offset + num_bytes > len(self._block):
            self._block_start += offset
            length = min(max(num_bytes, BLOCK_BYTES), self.file.size - self._block_start)
            self._block, offset = bytes(self.file.read(self._block_start, length)), 0
        return self._block[offset : offset + num_bytes]

    def number(self, code: str = "I") -> int:
        """Read a number of one of struct's types; the default is unsigned."""
        value: int = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return value
