"""Calls that end while the caller still writes: the server's own words must arrive.

When a server ends a stream, the caller's next write fails, and grpc.aio then reports INTERNAL in place of the
status that the server gave, OK included (https://github.com/grpc/grpc/issues/36066). A target ends its stream
after the last commit, whatever candidates are under way, and a refusal may come in the middle of the audio.
"""

from __future__ import annotations

from typing import Any, TypeVar

# How grpc words a write that Core did not even begin: then no status may follow. One that Core began fails
# because the stream has ended, and the status lies behind the messages that are still to be read.
NOT_BEGUN = "grpc_call_start_batch"

Call = TypeVar("Call")


class _StatusFirst:
    """A call's core object whose failed writes leave the status to the server."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def set_internal_error(self, details: str) -> None:
        """Put a write's failure in the status's place only if no status comes."""
        if NOT_BEGUN in details:
            self._core.set_internal_error(details)


def with_true_status(call: Call) -> Call:
    """Give a streaming call that ends with the status its server gave, whatever was being written then.

    It is for callers that read in one task and write in another: a write that failed waits for the status.
    """
    core = getattr(call, "_cython_call", None)
    if core is not None:
        call._cython_call = _StatusFirst(core)  # type: ignore[attr-defined]
    return call
