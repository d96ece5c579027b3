"""Limit the sessions of a server, in all and for each caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from specwhisper.errors import ServerFull


class SessionLimiter:
    """Counts open sessions by caller, and refuses those above a limit.

    Parameters
    ----------
    server : the server's name, as messages begin with it.
    max_sessions : most sessions of all callers.
    max_per_caller : most sessions of one caller; all tokens of one name are one caller. ``None`` is no limit.
    """

    def __init__(self, server: str, max_sessions: int, max_per_caller: int | None = None) -> None:
        self.max_sessions = max_sessions
        self._server = server
        self._max_per_caller = max_per_caller
        self._num_by_caller: Counter[str] = Counter()

    @property
    def num_sessions(self) -> int:
        """Open sessions of all callers."""
        return self._num_by_caller.total()

    def check(self, caller: str) -> None:
        """Raise :class:`ServerFull` unless a caller may open another session."""
        if self.num_sessions >= self.max_sessions:
            raise ServerFull(
                f"{self._server} holds its {self.max_sessions} sessions already: try again later."
            )
        if self._max_per_caller is not None and self._num_by_caller[caller] >= self._max_per_caller:
            raise ServerFull(
                f"{self._server} holds {self._max_per_caller} sessions of '{caller}', as many as one caller "
                "may have: end one, or try again later."
            )

    @contextmanager
    def admit(self, caller: str) -> Iterator[None]:
        """Count a caller's session while the body runs.

        Raise :class:`ServerFull` above a limit.
        """
        self.check(caller)
        self._num_by_caller[caller] += 1
        try:
            yield
        finally:
            self._num_by_caller[caller] -= 1
            if not self._num_by_caller[caller]:
                del self._num_by_caller[caller]
