"""The private API of grpcio that this package uses.

``tests/rpc/target/test_streams.py`` fails where a release of grpcio no longer has it.
"""

from __future__ import annotations

from typing import Any

GRPCIO = "1.85"  # the last release that it was tried with
# How grpcio words a write that Core did not begin. No status follows such a write. If Core did begin the
# write, it failed because the stream has ended, and the status comes after the messages still to be read.
WRITE_NOT_BEGUN = "grpc_call_start_batch"


class _CoreCall:
    """A call's core object, which no write ends that Core has begun."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def set_internal_error(self, details: str) -> None:
        if WRITE_NOT_BEGUN in details:
            self._core.set_internal_error(details)


def wait_for_status(call: Any) -> None:
    """Let no write end a streaming call before its status has come. A call of another kind stays as it is."""
    if (core := getattr(call, "_cython_call", None)) is not None:
        call._cython_call = _CoreCall(core)
