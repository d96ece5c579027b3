"""TLS handshakes of HTTP servers: limited, timed, with the newest certificate.

asyncio and uvicorn report a connection only after its handshake, and read a certificate once.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.uvicorn_compat import ServerState

logger = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
CLOSE_S = 5.0  # for a client that does not answer the end of its encrypted connection


def encrypted(
    make: Callable[..., asyncio.Protocol], tls: ServerTls, max_connections: int
) -> Callable[..., asyncio.Protocol]:
    """Return a factory of connections that begin with a handshake.

    Uvicorn calls it as it would ``make``.
    """
    certificate = _Certificate(tls)

    def start(server_state: ServerState, **settings: Any) -> asyncio.Protocol:
        def connection() -> asyncio.Protocol:
            return make(server_state=server_state, **settings)

        return _Handshake(connection, certificate, server_state.connections, max_connections)

    return start


class _Certificate:
    """The context of the newest certificate.

    One that cannot be read leaves the last one in use.
    """

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._stamp = self._current_stamp()
        self._context = tls.context()

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake."""
        try:
            if (stamp := self._current_stamp()) != self._stamp:
                self._stamp, self._context = stamp, self._tls.context()
        except (OSError, InvalidRequest) as error:
            logger.warning("certificate kept", extra={"error": str(error)})
        return self._context

    def _current_stamp(self) -> list[tuple[int, int, int]]:
        tls = self._tls
        found = [path.stat() for path in (tls.certificate, tls.key, tls.client_roots) if path is not None]
        return [(file.st_mtime_ns, file.st_size, file.st_ino) for file in found]


class _Handshake(asyncio.Protocol):
    """A connection until it is encrypted.

    Parameters
    ----------
    make : returns the protocol of the encrypted connection.
    connections : the server's connections, of which this is one from its first moment.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        certificate: _Certificate,
        connections: set[Any],
        max_connections: int,
    ) -> None:
        self._make = make
        self._certificate = certificate
        self._connections = connections
        self._max_connections = max_connections
        self._early = bytearray()  # requests that arrive together with the end of the handshake
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake; above the limit, cut: an answer would need the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if len(self._connections) >= self._max_connections:
            transport.abort()
            return
        transport.pause_reading()  # until the handshake reads
        self._connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        """Keep what the client sends right after the handshake."""
        self._early += data

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        self._is_lost = True
        self._connections.discard(self)

    def shutdown(self) -> None:
        """Cut the connection: the server stops."""
        self.transport.abort()

    async def _run(self) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                self.transport,
                self,
                self._certificate.context(),
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
            )
        except OSError:  # TLS errors and timeouts too
            self.transport.abort()
            return
        finally:
            self._connections.discard(self)
        if encrypted is None or self._is_lost:
            return
        protocol = self._make()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if self._early:
            protocol.data_received(bytes(self._early))
