"""Where HTTP/2 frames end in a stream of bytes."""

from __future__ import annotations

HEADER_BYTES, LENGTH_BYTES = 9, 3  # of an HTTP/2 frame, which begins with its length (RFC 9113, 4.1)


class Frames:
    """Where the frames of one direction of an HTTP/2 connection end, in what a server sends.

    Attributes
    ----------
    num_missing : bytes that its current frame still lacks, as far as they are known; 0 between two frames.
    is_last : whether nothing may follow the current frame.
    """

    def __init__(self) -> None:
        self.num_missing = 0
        self.is_last = False
        self._header = b""

    def take(self, data: bytes) -> int | None:
        """Follow some bytes; return after how many of them the last frame has ended, or ``None``."""
        position = 0
        while True:
            if self.is_last and not self.num_missing:
                return position
            if position == len(data):
                return None
            if not self.num_missing:
                self.num_missing = HEADER_BYTES
            piece = data[position : position + self.num_missing]
            position += len(piece)
            self.num_missing -= len(piece)
            if len(self._header) < HEADER_BYTES:
                self._header += piece
                if self.num_missing:
                    continue
                self.num_missing = int.from_bytes(self._header[:LENGTH_BYTES], "big")
            if not self.num_missing:
                self._header = b""
