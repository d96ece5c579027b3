"""TLS handshakes, which count as connections and have a deadline."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.server import ServerState

HANDSHAKE_S = 10.0
GOODBYE_S = 5.0  # for a client that does not answer the end of its encrypted connection


class Handshake(asyncio.Protocol):
    """A connection until it is encrypted; it is one of the server's connections from its first moment.

    Parameters
    ----------
    make : returns what the connection becomes.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        state: ServerState,
        max_connections: int,
    ) -> None:
        self._make = make
        self._context = context
        self._connections: set[Any] = state.connections
        self._max_connections = max_connections
        self._early = bytearray()  # requests that arrive together with the end of the handshake
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; one connection too many is cut, since an answer would need the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._connections) >= self._max_connections:
            transport.abort()
            return
        transport.pause_reading()  # until the handshake reads
        self._connections.add(self)
        self._work = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        """Keep what is sent right after the handshake."""
        self._early += data

    def connection_lost(self, error: Exception | None) -> None:
        """Note that there is nothing to hand over."""
        self._is_over = True
        self._connections.discard(self)

    def shutdown(self) -> None:
        """Cut the connection: the server stops."""
        self._transport.abort()

    async def _run(self) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=GOODBYE_S,
            )
        except OSError:  # TLS errors and timeouts too
            self._transport.abort()
            return
        finally:
            self._connections.discard(self)
        if encrypted is None or self._is_over:
            return
        protocol = self._make()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if self._early:
            protocol.data_received(bytes(self._early))


def encrypted(
    kind: Callable[..., asyncio.Protocol], context: ssl.SSLContext, max_connections: int
) -> Callable[..., Handshake]:
    """Return what makes connections of a kind that begin with a handshake, as uvicorn makes them."""

    def make(server_state: ServerState, **settings: Any) -> Handshake:
        return Handshake(
            lambda: kind(server_state=server_state, **settings), context, server_state, max_connections
        )

    return make
