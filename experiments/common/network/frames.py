"""Find the ends of HTTP/2 frames in a stream of bytes."""

from __future__ import annotations

HEADER_BYTES, LENGTH_BYTES = 9, 3  # of an HTTP/2 frame, which begins with its length (RFC 9113, 4.1)


class Frames:
    """Tracks the ends of a server's frames in one direction of an HTTP/2 connection.

    Attributes
    ----------
    num_missing : missing bytes of the current frame, as far as known; 0 between frames.
    is_last : whether the current frame is the last to let through.
    """

    def __init__(self) -> None:
        self.num_missing = 0
        self.is_last = False
        self._header = b""

    def take(self, data: bytes) -> int | None:
        """Process bytes; return the position after the last frame, or ``None`` before its end."""
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
