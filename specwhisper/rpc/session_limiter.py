"""Limit the sessions of a server, in all and for each caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from specwhisper.errors import ServerFull

KEPT_PART = 8  # one session in eight is kept from a caller that has all others
SEEN_S = 86_400.0  # how long a caller that has wanted a session counts


class SessionLimiter:
    """Counts open sessions by caller, and refuses those above a limit.

    Parameters
    ----------
    server : the server's name, with which messages begin.
    max_sessions : most sessions of all callers.
    counted : what is counted, as messages name it.
    max_per_caller : most sessions of one caller; all tokens of one name are one caller. By default one caller
        has all of them, or, if another one was there within a day, all but an eighth.
    """

    def __init__(
        self,
        server: str,
        max_sessions: int,
        max_per_caller: int | None = None,
        *,
        counted: str = "sessions",
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.max_sessions = max_sessions
        self._server = server
        self._counted = counted
        self._max_per_caller = max_per_caller
        self._num_by_caller: Counter[str] = Counter()
        self._clock = clock
        self._seen_s: dict[str, float] = {}  # when the last two callers wanted a session

    @property
    def num_sessions(self) -> int:
        return self._num_by_caller.total()

    def check(self, caller: str) -> None:
        self._seen_s.pop(caller, None)
        self._seen_s[caller] = self._clock()
        if len(self._seen_s) > 2:
            del self._seen_s[next(iter(self._seen_s))]
        if self.num_sessions >= self.max_sessions:
            raise ServerFull(
                f"{self._server} holds its {self.max_sessions} {self._counted} already: try again later."
            )
        if self._num_by_caller[caller] >= (most := self._most(caller)):
            raise ServerFull(
                f"{self._server} holds {most} {self._counted} of '{caller}', as many as one caller may have "
                "(--max-sessions-per-token): end one, or try again later."
            )

    def _most(self, caller: str) -> int:
        if self._max_per_caller is not None:
            return self._max_per_caller
        since_s = self._clock() - SEEN_S
        has_others = any(name != caller and at_s > since_s for name, at_s in self._seen_s.items())
        return max(1, self.max_sessions - -(-self.max_sessions // KEPT_PART) * has_others)

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
