"""Exponential backoff with jitter between attempts at a server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from time import monotonic

from specwhisper.errors import SpecWhisperError

FIRST_S = 0.05
# Together with gRPC's own delay to reconnect, sessions return to a restarted server within 2 s.
MOST_S = 1.0


class Backoff:
    """Delays attempts, for ``timeout_s`` in all.

    Delays are drawn evenly up to a bound that doubles ("full jitter"), so that sessions which lost the same
    server do not reconnect all at once. A server that names a time to try again is not asked before.
    """

    def __init__(self, timeout_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until_s = clock() + timeout_s
        self._bound_s = FIRST_S

    def next_wait_s(self, error: SpecWhisperError, *, is_elsewhere: bool = False) -> float | None:
        """Return the delay after an error, in seconds; ``None`` after the timeout."""
        wait_s = random.uniform(0, self._bound_s)
        if error.retry_after_s is not None and not is_elsewhere:
            wait_s = error.retry_after_s * random.uniform(1, 1.5)
        self._bound_s = min(2 * self._bound_s, MOST_S)
        return wait_s if self._clock() + wait_s < self._until_s else None

    async def wait(self, error: SpecWhisperError, *, is_elsewhere: bool = False) -> None:
        """Wait for the next attempt; raise the error after the timeout.

        Parameters
        ----------
        is_elsewhere : whether another server is next: the time in the error does not apply to it.
        """
        wait_s = self.next_wait_s(error, is_elsewhere=is_elsewhere)
        if wait_s is None:
            raise error
        await asyncio.sleep(wait_s)
