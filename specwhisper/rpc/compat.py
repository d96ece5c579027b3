"""The private API of grpcio that this package uses.

``tests/rpc/target/test_streams.py`` fails where a release of grpcio no longer has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GRPCIO = "1.85"  # the last release that it was tried with
# How grpcio words a write that Core did not begin. No status follows such a write. If Core did begin the
# write, it failed because the stream has ended, and the status comes after the messages still to be read.
WRITE_NOT_BEGUN = "grpc_call_start_batch"


class _CoreCall:
    """A call's core object, whose internal errors a filter may drop."""

    def __init__(self, core: Any, is_reported: Callable[[str], bool]) -> None:
        self._core = core
        self._is_reported = is_reported

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def set_internal_error(self, details: str) -> None:
        """End the call with INTERNAL, if the filter lets the error through."""
        if self._is_reported(details):
            self._core.set_internal_error(details)


def filter_internal_errors(call: Any, is_reported: Callable[[str], bool]) -> None:
    """Ignore the internal errors of a streaming call that are not to be reported.

    ``is_reported(details)`` decides for each error. A call of another kind stays as it is.
    """
    if (core := getattr(call, "_cython_call", None)) is not None:
        call._cython_call = _CoreCall(core, is_reported)
