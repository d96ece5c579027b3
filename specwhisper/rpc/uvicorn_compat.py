"""The undocumented parts of uvicorn that the HTTP servers build on.

Its connections are protocols of asyncio. Subclasses add the deadlines and limits that uvicorn has no settings
for. ``tests/rpc/serving/test_uvicorn_compat.py`` fails where a release no longer has what they use.
"""

from __future__ import annotations

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

UVICORN = "0.54"  # the last release that it was tried with

# Used by subclasses: attributes after ``__init__``, and methods.
HTTP_ATTRIBUTES = ("conn", "connections", "cycle", "loop")
HTTP_METHODS = ("_should_upgrade", "connection_lost", "connection_made", "data_received", "send_400_response")
SOCKET_ATTRIBUTES = ("close_sent", "conn", "frames", "handshake_complete", "handshake_initiated")
SOCKET_METHODS = ("data_received", "handle_cont", "handle_parser_exception", "send")

__all__ = ["H11Protocol", "ServerState", "WebSocketsSansIOProtocol"]
