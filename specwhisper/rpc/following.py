"""The next item of an iterator, awaited beside something else: a clock, or another task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from typing import Any, Generic, Self, TypeVar

Item = TypeVar("Item")


class Following(Generic[Item]):
    """The next item; a context manager around the time in which it may come.

    Behind that it comes no more, and the iterator may be closed: nobody may close what is still running.
    """

    def __init__(self, items: AsyncIterator[Item]) -> None:
        self._task = asyncio.ensure_future(anext(items, None))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if not self._task.done():
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        finally:  # its error knows the frame that knows this, and what is left in a circle stays for a while
            del self._task

    async def is_there(self, *beside: asyncio.Future[Any], within_s: float = inf) -> bool:
        """Wait for it, but no longer than so, nor for longer than it takes until anything else is done."""
        await asyncio.wait((self._task, *beside), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return self._task.done()

    @property
    def item(self) -> Item | None:
        """What has come, or ``None`` behind the last; the iterator's error is raised."""
        return self._task.result()
