"""The undocumented part of uvicorn that the gateway's WebSockets build on.

Other parts: ``specwhisper.rpc.uvicorn_compat``.
"""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

# Used by subclasses: attributes after ``__init__``, and methods.
SOCKET_ATTRIBUTES = ("close_sent", "conn", "frames", "handshake_complete", "handshake_initiated")
SOCKET_METHODS = ("data_received", "handle_cont", "handle_parser_exception", "send")

__all__ = ["WebSocketsSansIOProtocol"]
