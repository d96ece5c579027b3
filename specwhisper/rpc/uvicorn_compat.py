"""The undocumented parts of uvicorn that the HTTP servers build on.

Its connections are protocols of asyncio. Subclasses add the deadlines and limits that uvicorn has no settings
for. The gateway's WebSockets have a module of their own, as they need a library that the other servers lack.
``tests/rpc/serving/test_uvicorn_compat.py`` fails where a release no longer has what they use.
"""

from __future__ import annotations

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

UVICORN = "0.54"  # the last release that it was tried with

# Used by subclasses: attributes after ``__init__``, and methods.
HTTP_ATTRIBUTES = ("conn", "connections", "cycle", "loop")
HTTP_METHODS = ("_should_upgrade", "connection_lost", "connection_made", "data_received", "send_400_response")

__all__ = ["H11Protocol", "ServerState"]
