"""Tasks of asyncio that run beside their callers, or that they wait for together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")


@asynccontextmanager
async def beside(search: Callable[[], Coroutine[Any, Any, T]]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a search during a block; yield its task.

    An error of the search ends the block, whose result would lack what was searched for. Leaving the block
    ends the search.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(search())
            yield task
            task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0]  # noqa: B904  # it keeps the cause that it has


@asynccontextmanager
async def running(*work: Awaitable[Any]) -> AsyncIterator[tuple[asyncio.Future[Any], ...]]:
    """Run tasks during a block; what still runs at its end is cancelled."""
    tasks = tuple(map(asyncio.ensure_future, work))
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """As a task's done callback, retrieve an error that no caller may await: asyncio does not log it."""
    if not task.cancelled():
        task.exception()


class NextItem(Generic[Item]):
    """A context manager that waits for the next item of an iterator, or cancels that.

    After the block, the iterator can be closed: closing it while ``anext()`` is pending is an error.
    """

    def __init__(self, items: AsyncIterator[Item]) -> None:
        self._task = asyncio.ensure_future(anext(items, None))
        self._task.add_done_callback(retrieve_error)  # the block may end in the moment in which it fails

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
        """Wait for the item, another task or a timeout; return whether the item has arrived."""
        await asyncio.wait((self._task, *others), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return self._task.done()

    @property
    def item(self) -> Item | None:
        """The item, or ``None`` after the last one; raises the iterator's error."""
        return self._task.result()
