"""Audio of a session that its draft server has not taken yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from specwhisper.types import TimedHint

# Up to there the gateway reads on, so that it answers pings: otherwise a client gives up after 40 s
# (websockets' keepalive), however much it has sent.
MAX_WAITING_BYTES = 32 * 1024 * 1024
TURN_BYTES = 16 * 1024  # that a turn takes besides its audio

Piece = bytes | TimedHint


class Backlog:
    """Counts what waits in all turns of a session."""

    def __init__(self) -> None:
        self._num_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def has_room(self) -> None:
        await self._has_room.wait()

    def add(self, num_bytes: int) -> None:
        """Count bytes that wait, or with a number below 0, that no longer do."""
        self._num_bytes += num_bytes
        if self._num_bytes <= MAX_WAITING_BYTES:
            self._has_room.set()
        else:
            self._has_room.clear()


class TurnAudio:
    """Audio of one turn, and hints for it, from when they come until they are taken; ``None`` ends it."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        backlog.add(TURN_BYTES)

    def put(self, piece: Piece | None) -> None:
        self._backlog.add(_size(piece))
        self._pieces.put_nowait(piece)

    async def taken(self) -> AsyncGenerator[Piece]:
        while (piece := await self._pieces.get()) is not None:
            try:
                yield piece
            finally:
                self._backlog.add(-_size(piece))

    def discard(self) -> None:
        while not self._pieces.empty():
            self._backlog.add(-_size(self._pieces.get_nowait()))

    def end(self) -> None:
        """No longer count the turn: it is over."""
        self.discard()
        self._backlog.add(-TURN_BYTES)


def _size(piece: Piece | None) -> int:
    return len(piece.text.encode() if isinstance(piece, TimedHint) else piece or b"")
