"""The caller of the current call."""

from __future__ import annotations

from contextvars import ContextVar

ANONYMOUS = ""

# The name of the current call's caller; ANONYMOUS if the server has no tokens.
caller: ContextVar[str] = ContextVar("caller", default=ANONYMOUS)
# The address of its peer, without the port; empty for a socket of this machine.
address: ContextVar[str] = ContextVar("address", default="")


def counted_as() -> str:
    """Return the caller whose limits count this call: its name, or else address."""
    return caller.get() or address.get()
