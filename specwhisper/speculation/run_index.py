"""Find where a hint has the last words of the committed text."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

NUM_SEARCHED = 3  # words in a row that find a lost place


class RunIndex:
    """Where each run of :data:`NUM_SEARCHED` words of a hint ends.

    Words are indexed when they are first needed. Empty ones are skipped.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, ...], list[int]] = {}  # positions after a run
        self._runs: list[tuple[tuple[str, ...], int]] = []  # the same, in order
        self._num_indexed = 0
        self._last: deque[str] = deque(maxlen=NUM_SEARCHED)  # words before those that are not indexed

    def nearest(self, run: Sequence[str], words: Sequence[str], position: int) -> int | None:
        """Return the place after a run that is nearest to a position.

        ``None`` if the words lack the run.
        """
        self._extend(words)
        places = self._places.get(tuple(run))
        if not places:
            return None
        return places[min(bisect_left(places, position), len(places) - 1)]

    def truncate(self, words: Sequence[str]) -> None:
        """Forget all but these first words."""
        if self._num_indexed <= len(words):
            return
        while self._runs and self._runs[-1][1] > len(words):
            run, _ = self._runs.pop()
            self._places[run].pop()
            if not self._places[run]:
                del self._places[run]
        last = self._runs[-1][0] if self._runs else [word for word in words if word]
        self._last = deque(last, maxlen=NUM_SEARCHED)
        self._num_indexed = len(words)

    def _extend(self, words: Sequence[str]) -> None:
        for position in range(self._num_indexed, len(words)):
            if not (word := words[position]):
                continue
            self._last.append(word)
            if len(self._last) == NUM_SEARCHED:
                run = tuple(self._last)
                self._places.setdefault(run, []).append(position + 1)
                self._runs.append((run, position + 1))
        self._num_indexed = len(words)
