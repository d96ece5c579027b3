"""The call that is being answered, or made: its caller, and its id, which every process logs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextvars import ContextVar

REQUEST_ID = "x-request-id"  # metadata of every call
VALID = re.compile(r"[A-Za-z0-9._-]{1,64}")
ANONYMOUS = ""

# The id of the call; empty outside of any.
request_id: ContextVar[str] = ContextVar("request_id", default="")
# The name of its caller; ANONYMOUS if the server has no tokens.
caller: ContextVar[str] = ContextVar("caller", default=ANONYMOUS)
# The address of its peer, without the port; empty for a socket of this machine.
address: ContextVar[str] = ContextVar("address", default="")


def counted_as() -> str:
    """Return the caller whose limits count this call: its name, or else address."""
    return caller.get() or address.get()


def current_request_id() -> str:
    return request_id.get() or secrets.token_hex(8)


def received_request_id(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the id that a caller sent; a new one if it sent none, or none that fits into a log."""
    received = dict(metadata).get(REQUEST_ID)
    return received if isinstance(received, str) and VALID.fullmatch(received) else secrets.token_hex(8)
