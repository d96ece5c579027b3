"""Wait for an async iterator's next item together with a timeout or other tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from typing import Any, Generic, Self, TypeVar

Item = TypeVar("Item")


class NextItem(Generic[Item]):
    """A context manager that waits for the next item of an iterator, or cancels that.

    After the block, the iterator can be closed: closing it while ``anext()`` is pending is an error.
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
        finally:  # the task's error refers to the caller's frame, which refers to this: no reference cycle
            del self._task

    async def wait(self, *others: asyncio.Future[Any], timeout_s: float = inf) -> bool:
        """Wait for the item, another task or a timeout.

        Return whether the item has arrived.
        """
        await asyncio.wait((self._task, *others), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return self._task.done()

    @property
    def item(self) -> Item | None:
        """The item, or ``None`` after the last one; raises the iterator's error."""
        return self._task.result()
