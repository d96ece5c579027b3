"""How many transcriptions there may be at once: in all, and of each caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from specwhisper.errors import ServerFull


class Places:
    """Counts who is being served.

    Parameters
    ----------
    num_places : of all callers together.
    num_each : of one; ``None`` lets one take them all.
    """

    def __init__(self, num_places: int, num_each: int | None = None) -> None:
        self._num_places = num_places
        self._num_each = num_each
        self._taken: Counter[str] = Counter()

    @property
    def num_taken(self) -> int:
        """How many are held."""
        return self._taken.total()

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Hold a place of a caller's; :class:`ServerFull` at once where there is none."""
        if self.num_taken >= self._num_places:
            raise ServerFull(
                f"This gateway holds its {self._num_places} transcriptions already: try again later."
            )
        if self._num_each is not None and self._taken[caller] >= self._num_each:
            raise ServerFull(
                f"This key has its {self._num_each} transcriptions at once already: wait until one has ended."
            )
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            self._taken += Counter()  # forgets who has none
