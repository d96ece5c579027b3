"""Who has a place at a server: so many sessions in all, and so many of one caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from specwhisper.errors import ServerFull


class Places:
    """Counts sessions by the names of their callers, and refuses one too many at once.

    Parameters
    ----------
    holder : who is full then, as a sentence begins.
    max_sessions : of all callers.
    max_per_caller : of one; several tokens of one name are one caller. ``None`` for no such limit.

    Attributes
    ----------
    max_sessions : the same.
    """

    def __init__(self, holder: str, max_sessions: int, max_per_caller: int | None = None) -> None:
        self._holder = holder
        self.max_sessions = max_sessions
        self._max_per_caller = max_per_caller
        self._taken: Counter[str] = Counter()

    @property
    def num_taken(self) -> int:
        """Sessions of all callers."""
        return self._taken.total()

    def check(self, caller: str) -> None:
        """Raise :class:`ServerFull` unless a caller may have one more session."""
        if self.num_taken >= self.max_sessions:
            raise ServerFull(
                f"{self._holder} holds its {self.max_sessions} sessions already: try again later."
            )
        if self._max_per_caller is not None and self._taken[caller] >= self._max_per_caller:
            raise ServerFull(
                f"{self._holder} holds {self._max_per_caller} sessions of '{caller}', as many as one caller "
                "may have: end one, or try again later."
            )

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Take a place for as long as a session lasts."""
        self.check(caller)
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
