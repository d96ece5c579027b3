"""When to try again what a server could not do: later each time, at random, or when it said."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from time import monotonic

from specwhisper.errors import SpecWhisperError

FIRST_S = 0.05
# With what gRPC waits until it connects again, a server that is back has its sessions within 2 s.
MOST_S = 1.0


class Backoff:
    """Waits between tries, for ``patience_s`` in all.

    Waits are drawn evenly up to a bound that doubles ("full jitter"), so that sessions which lost the same
    server do not come back as one. A server that says when to knock again is not asked before.
    """

    def __init__(self, patience_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until_s = clock() + patience_s
        self._bound_s = FIRST_S

    def next_wait_s(self, error: SpecWhisperError, *, is_elsewhere: bool = False) -> float | None:
        """Tell how long to wait behind an error; ``None`` when patience is over."""
        wait_s = random.uniform(0, self._bound_s)
        if error.retry_after_s is not None and not is_elsewhere:
            wait_s = error.retry_after_s * random.uniform(1, 1.5)
        self._bound_s = min(2 * self._bound_s, MOST_S)
        return wait_s if self._clock() + wait_s < self._until_s else None

    def put_off(self, held_s: float) -> None:
        """Let patience last longer, by a time in which nothing was waited for."""
        self._until_s += held_s

    async def wait(self, error: SpecWhisperError, *, is_elsewhere: bool = False) -> None:
        """Wait for the next try; raise the error when patience is over.

        Parameters
        ----------
        is_elsewhere : whether another server is asked next: it has not said when to knock.
        """
        wait_s = self.next_wait_s(error, is_elsewhere=is_elsewhere)
        if wait_s is None:
            raise error
        await asyncio.sleep(wait_s)
