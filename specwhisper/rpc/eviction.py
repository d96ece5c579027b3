"""Calls that overstay: the server ends them, whatever their callers read or do not read.

A server of grpc.aio cannot cancel a call, and its write to a caller that reads nothing returns no more once
flow control is exhausted. What ends such a call is a status from another task, which goes out behind what is
still unread, and the cancellation of the handler, with which go the session and its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any

from specwhisper.errors import SessionExpired, SlowReader, SpecWhisperError
from specwhisper.wire.outcomes import evictions
from specwhisper.wire.status import refusal

logger = logging.getLogger(__name__)

_ending: set[asyncio.Task[None]] = set()  # until their callers read the status, or leave


class Tenure:
    """How long a call may stay; made in its handler's task, whose end is the call's.

    Parameters
    ----------
    context : grpc's, of the call.
    max_s : how long it may last.
    untaken_s : how long one of its answers may wait to be taken.
    count_error : sees what it was evicted for.
    """

    def __init__(
        self,
        context: Any,
        max_s: float = inf,
        untaken_s: float = inf,
        count_error: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._count_error = count_error
        self._context = context
        self._max_s = max_s
        self._untaken_s = untaken_s
        self._handler = asyncio.current_task()
        self._evicted_for = evictions.get([])
        evictions.set(self._evicted_for)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Evict the call where what is within takes longer than it may last."""
        message = f"The call has lasted {self._max_s:g} s, as long as one may: go on with another one."
        with self._unless_after(self._max_s, SessionExpired(message)):
            yield

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Evict the call where its caller does not take an answer meanwhile."""
        message = f"No answer was taken for {self._untaken_s:g} s: the call has ended."
        with self._unless_after(self._untaken_s, SlowReader(message)):
            yield

    def end(self, error: SpecWhisperError) -> None:
        """Evict the call, once."""
        if self._evicted_for:
            return
        self._evicted_for.append(error)
        self._count_error(error)
        logger.info("evicted", extra={"error": type(error).__name__})
        task = asyncio.ensure_future(self._tell(error))
        _ending.add(task)
        task.add_done_callback(_ending.discard)
        if self._handler is not None:
            self._handler.cancel()

    async def _tell(self, error: SpecWhisperError) -> None:
        with suppress(Exception):  # grpc's own, by which abort always ends
            await self._context.abort(*refusal(error))

    @contextmanager
    def _unless_after(self, limit_s: float, error: SpecWhisperError) -> Iterator[None]:
        timer = asyncio.get_running_loop().call_later(limit_s, self.end, error)
        try:
            yield
        finally:
            timer.cancel()
