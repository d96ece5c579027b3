"""Metrics over HTTP, on a port of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from specwhisper.errors import Unauthenticated
from specwhisper.rpc.addresses import cannot_listen, join_address
from specwhisper.rpc.handshakes import encrypted
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.tokens import Tokens
from specwhisper.rpc.uvicorn_compat import H11Protocol, ServerState

SCRAPE_S = 20.0  # for a whole connection; a scrape takes milliseconds, and Prometheus waits for ten seconds
MAX_CONNECTIONS = 100
MAX_HEAD_BYTES = 16 * 1024

# Answers a path and an Accept header with a status, a media type and a body, in a thread.
Page = Callable[[str, str], tuple[HTTPStatus, str, bytes]]


def metrics_page(registry: CollectorRegistry) -> Page:
    def page(path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        encode, media_type = choose_encoder(accept)
        return HTTPStatus.OK, media_type, encode(registry)

    return page


@asynccontextmanager
async def serving_page(
    page: Page, host: str, port: int, tls: ServerTls | None, tokens: Tokens | None
) -> AsyncIterator[str]:
    """Serve a page and yield its address; port 0 takes a free port.

    prometheus_client's own server knows no tokens, and one client that does not complete a TLS handshake
    stops it for all others.
    """
    state = ServerState()
    make: Callable[..., asyncio.Protocol] = _Connection
    if tls is not None:
        make = encrypted(_Connection, tls, MAX_CONNECTIONS)
    config = uvicorn.Config(
        _App(page, tokens),
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
    )
    connect = partial(make, server_state=state, config=config, app_state={})
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family)
        server = await asyncio.get_running_loop().create_server(connect, sock=listening)
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    try:
        yield join_address(host, listening.getsockname()[1])
    finally:
        server.close()
        for connection in tuple(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks)
        await server.wait_closed()


class _Connection(H11Protocol):
    """A connection that is cut after a time.

    Uvicorn waits forever for a request and for a slow reader.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock; above the limit, cut."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(SCRAPE_S, transport.abort)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._deadline.cancel()
        super().connection_lost(exc)


class _App:
    """The ASGI application that asks for a token and answers with a page."""

    def __init__(self, page: Page, tokens: Tokens | None) -> None:
        self._page = page
        self._tokens = tokens

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        received = dict(scope["headers"])
        headers = []
        try:
            if self._tokens is not None:
                self._tokens.name_of(received.get(b"authorization"))
            accept = received.get(b"accept", b"").decode("latin-1")
            status, media_type, body = await asyncio.to_thread(self._page, scope["path"], accept)
        except Unauthenticated as error:
            status, media_type, body = HTTPStatus.UNAUTHORIZED, "text/plain", f"{error}\n".encode()
            headers.append((b"www-authenticate", b"Bearer"))
        headers += [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": body})
