"""A cached answer, such as whether the draft server and its target answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from specwhisper.tasks import retrieve_error

MAX_AGE_S = 2.0

T = TypeVar("T")


class CachedAnswer(Generic[T]):
    """Shares one answer, or one error, between all callers within some seconds.

    Parameters
    ----------
    ask : returns a new answer; it is never called twice at once.
    max_age_s : how long an answer is valid, in seconds.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], max_age_s: float = MAX_AGE_S) -> None:
        self._ask = ask
        self._max_age_s = max_age_s
        self._answer: asyncio.Task[T] | None = None
        self._good_until_s = 0.0

    async def get(self) -> T:
        now_s = asyncio.get_running_loop().time()
        if self._answer is None or (self._answer.done() and now_s >= self._good_until_s):
            self._answer = asyncio.ensure_future(self._asked())
            self._answer.add_done_callback(retrieve_error)
        # Shielded: a caller that leaves does not cancel it for others.
        return await asyncio.shield(self._answer)

    async def close(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
            await asyncio.gather(self._answer, return_exceptions=True)

    async def _asked(self) -> T:
        try:
            return await self._ask()
        finally:
            self._good_until_s = asyncio.get_running_loop().time() + self._max_age_s
