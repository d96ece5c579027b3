"""The id of a request, which every process that works on it logs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextvars import ContextVar

KEY = "x-request-id"  # metadata of every call
VALID = re.compile(r"[A-Za-z0-9._-]{1,64}")

# The id of the call that is being answered, or made; empty outside of any.
request_id: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    return request_id.get() or secrets.token_hex(8)


def received_request_id(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the id that a caller sent; a new one if it sent none, or none that fits into a log."""
    received = dict(metadata).get(KEY)
    return received if isinstance(received, str) and VALID.fullmatch(received) else secrets.token_hex(8)
