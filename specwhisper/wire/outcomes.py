"""How a session or a call ended, in one word."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import grpc

from specwhisper.errors import OutOfMemory, SpecWhisperError
from specwhisper.wire.status import status_of

COMPLETE, CANCELLED, REFUSED, FAILED = OUTCOMES = ("complete", "cancelled", "refused", "failed")
# Statuses of a server or a pair that does not work; others are the caller's to correct.
FAILURES = (
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.FAILED_PRECONDITION,
)

# The error for which the server evicted the current call, or none.
evictions: ContextVar[list[SpecWhisperError]] = ContextVar("evictions")


def evicted_for() -> SpecWhisperError | None:
    """Return the error for which this call was evicted; ``None`` if it was not.

    The handler of an evicted call sees a cancellation.
    """
    return next(iter(evictions.get([])), None)


def outcome_of(error: BaseException) -> str:
    """Return the outcome of a session or call that raised an error."""
    if isinstance(error, GeneratorExit | asyncio.CancelledError):
        error = evicted_for() or error
    if isinstance(error, GeneratorExit):
        return CANCELLED
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return CANCELLED if task is not None and task.cancelling() else FAILED
    is_failure = isinstance(error, OutOfMemory) or status_of(error) in FAILURES
    return FAILED if is_failure else REFUSED
