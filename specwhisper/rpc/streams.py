"""Client calls that report the server's own status although a write has failed.

When a server ends a stream, the client's next write fails, and grpc.aio then reports INTERNAL instead of the
status that the server sent, even OK (https://github.com/grpc/grpc/issues/36066). Here this is usual: a target
ends its stream after the last commit, while candidates are still in flight, and may refuse a session in the
middle of its audio.
"""

from __future__ import annotations

from typing import TypeVar

from specwhisper.rpc.compat import WRITE_NOT_BEGUN, filter_internal_errors

Call = TypeVar("Call")


def with_true_status(call: Call) -> Call:
    """Return a streaming call that ends with the server's status, also after a failed write.

    Read in one task and write in another: a write that failed waits for the status.
    """
    filter_internal_errors(call, lambda details: WRITE_NOT_BEGUN in details)
    return call
