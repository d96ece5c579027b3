"""Whether the draft server and its target answer, asked every few seconds at most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

MAX_AGE_S = 2.0

T = TypeVar("T")


class CachedAnswer(Generic[T]):
    """Shares one answer, or one error, between all who ask within some seconds.

    Parameters
    ----------
    ask : the question, which one call at a time asks.
    max_age_s : how long an answer is good, in seconds.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], max_age_s: float = MAX_AGE_S) -> None:
        self._ask = ask
        self._max_age_s = max_age_s
        self._answer: asyncio.Task[T] | None = None
        self._good_until_s = 0.0

    async def get(self) -> T:
        """Return the answer; ask where there is none that is new enough."""
        now_s = asyncio.get_running_loop().time()
        if self._answer is None or (self._answer.done() and now_s >= self._good_until_s):
            self._answer = asyncio.ensure_future(self._asked())
            self._answer.add_done_callback(_see_error)
        # A caller that leaves does not cancel what others wait for.
        return await asyncio.shield(self._answer)

    async def close(self) -> None:
        """Cancel a question that is open."""
        if self._answer is not None:
            self._answer.cancel()
            await asyncio.gather(self._answer, return_exceptions=True)

    async def _asked(self) -> T:
        try:
            return await self._ask()
        finally:
            self._good_until_s = asyncio.get_running_loop().time() + self._max_age_s


def _see_error(answer: asyncio.Task[T]) -> None:
    """Retrieve an error that all who asked have left, which asyncio would log."""
    if not answer.cancelled():
        answer.exception()
