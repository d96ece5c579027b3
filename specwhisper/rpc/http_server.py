"""The HTTP servers of the gateway and of metrics: uvicorn, with limits that it has no settings for.

No class of uvicorn's connections is subclassed: its protocol is wrapped in one of asyncio's, and the rest are
settings of uvicorn and of the listening socket.
``deploy/nginx.conf`` adds what needs more: limits by address, of a head's lines and of TLS handshakes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from specwhisper.rpc.addresses import join_address, listen_error
from specwhisper.rpc.tls import ServerTls

MAX_HEAD_BYTES = 16 * 1024
READ_BYTES = 4 * 1024  # parsed in milliseconds, even if chunks or frames are tiny; then others run
HEAD_S = 10.0  # from a connection's beginning, or the time to keep it alive, to the end of a request's head
KEEP_ALIVE_S = 5
UNREAD_S = 30.0  # for a client that reads nothing of its answer
SOCKET_OPTIONS_S = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
CONNECTION = "connection"  # key of a request's state
FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class HttpServer(uvicorn.Server):
    """Listens once it is constructed, and leaves signals to the process.

    Attributes
    ----------
    address : ``HOST:PORT`` where it listens.
    connections : the open ones, without TLS handshakes.
    ready : set once it answers.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        tls: ServerTls | None,
        *,
        max_connections: int,
        log_level: str | None = "error",
        **settings: Any,
    ) -> None:
        self._socket = _bound(host, port)
        self.address = join_address(host, self._socket.getsockname()[1])
        self.connections: set[_Connection] = set()
        self.ready = asyncio.Event()
        connection: Any = partial(_Connection, self.connections, max_connections)
        config = uvicorn.Config(
            _answering(app),
            log_config=None,  # the process configures logging
            log_level=log_level,
            access_log=False,
            server_header=False,
            # This setting takes any protocol: uvicorn's own within ours, as no setting has these limits.
            http=connection,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=KEEP_ALIVE_S,
            ssl_context_factory=None if tls is None else lambda *_: tls.context(),
            callback_notify=self.on_ready,
            **settings,
        )
        super().__init__(config)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        serving = asyncio.create_task(self.serve())
        try:
            await self.ready.wait()
            yield self.address
        finally:
            self.should_exit = True
            await serving

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets or [self._socket])
        finally:
            self._socket.close()

    async def on_ready(self) -> None:
        """Note that it answers: uvicorn calls this then, and every 30 s."""
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # uvicorn has no setting for a process that handles its signals itself


class _Connection(asyncio.BufferedProtocol):
    """One of uvicorn's connections: limited in number, read in small pieces, cut without a request.

    uvicorn's own ``limit_concurrency`` neither refuses WebSockets nor cuts connections that send no request.

    Parameters
    ----------
    others : the server's open connections.
    app_state : the application's state; uvicorn copies it into that of each request.
    """

    def __init__(
        self, others: set[_Connection], max_connections: int, *, app_state: dict[str, Any], **settings: Any
    ) -> None:
        self.protocol: Any = H11Protocol(app_state=app_state | {CONNECTION: self}, **settings)
        self._others = others
        self._max_connections = max_connections
        self._num_requests = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._read = memoryview(bytearray(READ_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's has another class
        if len(self._others) >= self._max_connections:
            transport.write(FULL)
            transport.close()
            self.protocol = asyncio.Protocol()  # takes what is left
            return
        self._others.add(self)
        self._expect_request(HEAD_S)
        self.protocol.connection_made(_Upgradable(transport, self))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read

    def buffer_updated(self, nbytes: int) -> None:
        self.protocol.data_received(bytes(self._read[:nbytes]))

    def eof_received(self) -> bool | None:
        ended: bool | None = self.protocol.eof_received()
        return ended

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
        self._expect_request(None)
        self.protocol.connection_lost(exc)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer a request: the next one has a deadline once none is open."""
        self._num_requests += 1
        self._expect_request(None)
        try:
            yield
        finally:
            self._num_requests -= 1
            if not self._num_requests and self in self._others:
                self._expect_request(KEEP_ALIVE_S + HEAD_S)

    def _expect_request(self, within_s: float | None) -> None:
        """Cut the connection after a time; ``None`` for not any more."""
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = None if within_s is None else loop.call_later(within_s, self._cut)

    def _cut(self) -> None:
        if self._transport.get_write_buffer_size():
            self._expect_request(HEAD_S)  # the client still reads the last answer
        else:
            self._transport.abort()  # an orderly close would wait for the client


class _Upgradable:
    """A transport whose protocol uvicorn may replace by a WebSocket's, which is read in small pieces too."""

    def __init__(self, transport: asyncio.Transport, connection: _Connection) -> None:
        self._transport = transport
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._connection.protocol = protocol


def _answering(app: Any) -> Any:
    """Wrap an ASGI application: its requests stop the deadlines of their connections."""

    async def answer(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        with scope["state"].pop(CONNECTION).answering():
            await app(scope, receive, send)

    return answer


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise listen_error(host, port, error) from error
    # Every connection inherits it: TCP notices a machine that has vanished, even if nothing is sent to it.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small messages wait for 40 ms
    # Linux cuts a connection whose bytes are not acknowledged, or not read, for this time.
    for name, value in (SOCKET_OPTIONS_S | {"TCP_USER_TIMEOUT": round(1000 * UNREAD_S)}).items():
        if hasattr(socket, name):  # not on every system
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return listening
