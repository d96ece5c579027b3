"""When a session that lost its server tries again, and when it gives up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from time import monotonic

from specwhisper.errors import SpecWhisperError

FIRST_DELAY_S = 0.05
# Together with gRPC's own delay before it reconnects: a server that is back has its sessions within 2 s.
MAX_DELAY_S = 1.0


class Failover:
    """Delays and time limit of one session's attempts to continue.

    Call :meth:`wait` with the error that ended an attempt, then try again. Call :meth:`progressed` when the
    session got further: the next loss then has the whole time limit and the shortest delay.

    Delays are drawn evenly up to a bound that doubles ("full jitter"), so that sessions which lost the same
    server do not return at once. A server that names a time is not asked before.

    Parameters
    ----------
    timeout_s : how long to try since the first loss after the last progress; ``inf`` for no limit.
    clock : returns the current time in seconds.
    """

    def __init__(self, timeout_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self.progressed()

    def progressed(self) -> None:
        """Reset the time limit and the delays; both start at the next loss."""
        self._delay_bound_s: float | None = None
        self._deadline_s: float | None = None
        self._connected_s: float | None = None

    def connected(self) -> None:
        """Note that a server has taken the session: until the next loss the limit does not count."""
        self._connected_s = self._clock()

    def lost(self) -> None:
        """Note that this server was lost: the limit counts again."""
        if self._connected_s is not None and self._deadline_s is not None:
            self._deadline_s += self._clock() - self._connected_s
        self._connected_s = None

    async def wait(self, error: SpecWhisperError, *, is_limited: bool = True) -> None:
        """Wait for the next attempt; raise ``error`` if it would be too late.

        Parameters
        ----------
        error : why the last attempt failed. Its ``retry_after_s`` is the shortest delay.
        is_limited : whether the time limit counts; it starts with the first wait where it does.
        """
        self.lost()
        delay_s = self._next_delay_s(error.retry_after_s)
        if is_limited:
            now_s = self._clock()
            if self._deadline_s is None:
                self._deadline_s = now_s + self._timeout_s
            if now_s + delay_s >= self._deadline_s:
                raise error
        await asyncio.sleep(delay_s)

    def _next_delay_s(self, retry_after_s: float | None) -> float:
        bound_s = FIRST_DELAY_S if self._delay_bound_s is None else self._delay_bound_s
        self._delay_bound_s = min(2 * bound_s, MAX_DELAY_S)
        if retry_after_s is not None:
            return retry_after_s * random.uniform(1, 1.5)
        return random.uniform(0, bound_s)
