"""Hold bytes that arrive in pieces, as they are."""

from __future__ import annotations

from collections import deque

WHOLE_BYTES = 4_096  # smaller pieces are put together, for each costs memory of its own


class Pieces:
    """A buffer of bytes that are dropped from its front.

    A piece is freed as a whole. Appending to one array would move all that is held now and then, and that
    would take as long as a short forward pass.
    """

    def __init__(self) -> None:
        self._pieces: deque[bytes | bytearray] = deque()
        self._num_dropped = 0  # bytes of the first piece
        self._num_bytes = 0

    def __len__(self) -> int:
        return self._num_bytes

    def append(self, piece: bytes) -> None:
        """Append bytes."""
        last = self._pieces[-1] if self._pieces else b""
        if len(piece) >= WHOLE_BYTES:
            self._pieces.append(piece)
        elif isinstance(last, bytearray) and len(last) < WHOLE_BYTES:
            last += piece
        else:
            self._pieces.append(bytearray(piece))
        self._num_bytes += len(piece)

    def drop(self, num_bytes: int) -> None:
        """Drop the first bytes, at most all."""
        num_bytes = min(num_bytes, self._num_bytes)
        self._num_bytes -= num_bytes
        self._num_dropped += num_bytes
        while self._pieces and self._num_dropped >= len(self._pieces[0]):
            self._num_dropped -= len(self._pieces.popleft())

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes of a range, as a slice does."""
        begin, end = (min(max(0, place), self._num_bytes) + self._num_dropped for place in (begin, end))
        parts: list[bytes | bytearray] = []
        place = 0
        for piece in self._pieces:
            if place >= end:
                break
            if place + len(piece) > begin:
                parts.append(piece[max(0, begin - place) : end - place])
            place += len(piece)
        return b"".join(parts)
