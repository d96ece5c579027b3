"""One name for what a caller asks for, in the logs of every process that works on it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextvars import ContextVar

KEY = "x-request-id"  # metadata of every call
VALID = re.compile(r"[A-Za-z0-9._-]{1,64}")

# Of the call that is being answered, or made; empty outside of any.
request_id: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """Give the name of what is under way, or a new one."""
    return request_id.get() or secrets.token_hex(8)


def told_request_id(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Read the name that a caller tells; a new one where he tells none, or none that fits into a log."""
    told = dict(metadata).get(KEY)
    return told if isinstance(told, str) and VALID.fullmatch(told) else secrets.token_hex(8)
