"""Find where a hint has the last words of the committed text."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

NUM_SEARCHED = 3  # words in a row that find a lost place
MAX_COMPARED = 8  # words, where several places have these
MAX_PLACES = 64  # that are compared, the nearest


class RunIndex:
    """Where each run of :data:`NUM_SEARCHED` words of a hint ends.

    Words are indexed when they are first needed. Empty ones are skipped.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, ...], list[int]] = {}  # positions after a run
        self._runs: list[tuple[tuple[str, ...], int]] = []  # the same, in order
        self._num_indexed = 0
        self._last: deque[str] = deque(maxlen=NUM_SEARCHED)  # words before those that are not indexed

    def find(self, recent: Sequence[str], words: Sequence[str], position: int) -> int | None:
        """Return the place after the last :data:`NUM_SEARCHED` of the recent words.

        Of several places, that which has most of the words before them too; then the nearest to a position.
        ``None`` if the words lack the run.
        """
        self._extend(words)
        places = self._places.get(tuple(recent[-NUM_SEARCHED:]), ())
        if len(places) < 2:
            return places[0] if places else None
        middle = bisect_left(places, position)
        near = places[max(0, middle - MAX_PLACES // 2) : middle + MAX_PLACES // 2]
        return min(
            near, key=lambda place: (-_num_shared(recent, words, place), abs(place - position), -place)
        )

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


def _num_shared(recent: Sequence[str], words: Sequence[str], place: int) -> int:
    """Count the last words that are the same before a place, without empty ones."""
    num = 0
    while place and num < len(recent):
        place -= 1
        if not words[place]:
            continue
        if words[place] != recent[-1 - num]:
            break
        num += 1
    return num
