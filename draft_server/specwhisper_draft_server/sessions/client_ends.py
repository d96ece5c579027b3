"""Answer each end of an utterance that a client asks for by one final text.

It is empty where nothing was said.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from specwhisper.transcription.live.windows import LivePieces, Piece


class ClientEnd(NamedTuple):
    """An end that is not answered.

    Attributes
    ----------
    last : the last complete piece before it, after whose text it is answered; ``None`` where all was final.
    sample : at which it came.
    is_empty : whether nothing was said since the last end, so that no text answers it.
    """

    last: Piece | None
    sample: int
    is_empty: bool


class ClientEnds:
    """The ends of one session, in order.

    Attributes
    ----------
    num_answered : also by sessions that this one continues.
    """

    def __init__(self, num_answered: int = 0) -> None:
        self.num_answered = num_answered
        self._open: deque[ClientEnd] = deque()

    def add(self, pieces: LivePieces, sample: int, *, is_empty: bool) -> None:
        """Note an end that the pieces follow already."""
        complete = [piece for piece in pieces.all if piece.is_complete]
        self._open.append(ClientEnd(complete[-1] if complete else None, sample, is_empty))

    def take_empty(self, pieces: LivePieces) -> list[ClientEnd]:
        """Return the ends without text that are due, now that other pieces are final."""
        waiting = set(pieces.all)
        empty = []
        while self._open and self._open[0].last not in waiting:
            self.num_answered += 1
            if (end := self._open.popleft()).is_empty:
                empty.append(end)
        return empty
