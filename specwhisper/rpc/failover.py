"""When a session that lost its server tries again, and when it gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic

from specwhisper.errors import SpecWhisperError
from specwhisper.rpc.backoff import Backoff


class Failover:
    """Delays the attempts of one session to continue, and limits how long it tries without progress.

    Call :meth:`wait` with the error that ended an attempt, then try again. Call :meth:`progressed` when the
    session got further: the next loss then has the whole time limit and the shortest delay.

    Parameters
    ----------
    timeout_s : how long to try since the first loss after the last progress; ``inf`` for no limit.
    clock : returns the current time in seconds.
    """

    def __init__(self, timeout_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self.progressed()

    @property
    def is_retrying(self) -> bool:
        """Whether something was lost since the last progress."""
        return self._backoff is not None

    def progressed(self) -> None:
        """Start the time limit and the delays anew at the next loss."""
        self._backoff: Backoff | None = None
        self._deadline_s: float | None = None
        self._connected_s: float | None = None

    def connected(self) -> None:
        """Note that a server has taken the session: the limit does not count time until the next loss."""
        self._connected_s = self._clock()

    def lost(self) -> None:
        """Note that this server was lost: the limit counts again."""
        if self._connected_s is not None and self._deadline_s is not None:
            self._deadline_s += self._clock() - self._connected_s
        self._connected_s = None

    async def wait(
        self, error: SpecWhisperError, *, is_elsewhere: bool = False, is_limited: bool = True
    ) -> None:
        """Wait for the next attempt; raise ``error`` if that would be after the time limit.

        Parameters
        ----------
        error : why the last attempt failed. Its ``retry_after_s`` is the shortest delay at the same server.
        is_elsewhere : whether another server is next: ``retry_after_s`` does not apply to it.
        is_limited : whether the time limit counts; it starts with the first wait where it does.
        """
        self.lost()
        self._backoff = self._backoff or Backoff(inf)
        wait_s = self._backoff.next_wait_s(error, is_elsewhere=is_elsewhere) or 0.0
        if is_limited:
            now_s = self._clock()
            if self._deadline_s is None:
                self._deadline_s = now_s + self._timeout_s
            if now_s + wait_s >= self._deadline_s:
                raise error
        await asyncio.sleep(wait_s)
