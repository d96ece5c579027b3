"""Eviction: the end of a call from outside its handler.

The reason is a time limit, or a caller that does not read. A grpc.aio server cannot cancel a call, and a
write to a caller that does not read never returns once flow control is exhausted. So another task sends the
status, which arrives after the messages that are still unread, and the handler is cancelled, which frees the
session and its slot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from math import inf
from typing import Any

from specwhisper.errors import SessionExpired, SlowReader, SpecWhisperError
from specwhisper.wire.status import evictions, refusal

logger = logging.getLogger(__name__)

_sending: set[asyncio.Task[None]] = set()  # keeps a status being sent until its caller reads it, or leaves


class Evictor:
    """Ends one call, at most once. Create it in the task of the call's handler."""

    def __init__(
        self,
        context: Any,
        max_call_s: float = inf,
        max_write_s: float = inf,
        count_error: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._max_call_s = max_call_s
        self._max_write_s = max_write_s
        self._count_error = count_error
        self._handler = asyncio.current_task()
        self._errors = evictions.get([])  # shared by all evictors of the call
        evictions.set(self._errors)

    def call_limit(self) -> AbstractContextManager[None]:
        """Evict the call if the body takes longer than a call may."""
        message = f"The call has lasted {self._max_call_s:g} s, the most for one call: start another one."
        return _limited(self._max_call_s, lambda: self.evict(SessionExpired(message)))

    def write_limit(self) -> AbstractContextManager[None]:
        """Evict the call if the body, which sends one response, takes too long."""
        message = f"No response was read for {self._max_write_s:g} s: the call has ended."
        return _limited(self._max_write_s, lambda: self.evict(SlowReader(message)))

    def evict(self, error: SpecWhisperError) -> None:
        """End the call with the status of an error, unless it is being evicted already."""
        if self._errors:
            return
        self._errors.append(error)
        self._count_error(error)
        logger.info("evicted", extra={"error": type(error).__name__})
        task = asyncio.ensure_future(self._send_status(error))
        _sending.add(task)
        task.add_done_callback(_sending.discard)
        if self._handler is not None:
            self._handler.cancel()

    async def _send_status(self, error: SpecWhisperError) -> None:
        with suppress(Exception):  # abort always raises
            await self._context.abort(*refusal(error))


@contextmanager
def _limited(limit_s: float, on_exceeded: Callable[[], object]) -> Iterator[None]:
    timer = asyncio.get_running_loop().call_later(limit_s, on_exceeded)
    try:
        yield
    finally:
        timer.cancel()
