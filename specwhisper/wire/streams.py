"""Calls that end while the caller still writes: the server's own words must arrive.

When a server ends a stream, the caller's next write fails, and grpc.aio then reports INTERNAL in place of the
status that the server gave, OK included (https://github.com/grpc/grpc/issues/36066). A target ends its stream
after the last commit, whatever candidates are under way, and a refusal may come in the middle of the audio.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

STATUS_GRACE_S = 1.0  # for a status that never comes, as when the call was broken beforehand

Call = TypeVar("Call")


class _StatusFirst:
    """A call's core object whose failed writes leave the status to the server."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def set_internal_error(self, details: str) -> None:
        """Put a write's failure in the status's place only if no status comes."""
        asyncio.get_running_loop().call_later(STATUS_GRACE_S, self._give_up, details)

    def _give_up(self, details: str) -> None:
        if not self._core.done():
            self._core.set_internal_error(details)


def with_true_status(call: Call) -> Call:
    """Give a streaming call that ends with the status its server gave, whatever was being written then."""
    core = getattr(call, "_cython_call", None)
    if core is not None:
        call._cython_call = _StatusFirst(core)  # type: ignore[attr-defined]
    return call
