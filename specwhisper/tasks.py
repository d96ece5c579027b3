"""Tasks of asyncio that run beside their callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


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
    """Retrieve an error that no caller may await, so that asyncio does not log it.

    Pass it to ``add_done_callback``.
    """
    if not task.cancelled():
        task.exception()
