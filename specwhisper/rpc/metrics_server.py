"""Metrics over HTTP, on their own port. A deployment also lists the addresses of its replicas' metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from specwhisper.errors import SpecWhisperError, Unauthenticated
from specwhisper.observe.metrics import TARGETS_PATH
from specwhisper.rpc.http_server import HttpServer
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.tokens import Tokens

MAX_CONNECTIONS = 100

# Answers a path and an Accept header with a status, a media type and a body, in a thread.
Page = Callable[[str, str], tuple[HTTPStatus, str, bytes]]


def targets_page(find: Callable[[], Sequence[str]], others: Page) -> Page:
    """Return a page that lists replicas at ``/targets``.

    Parameters
    ----------
    find : returns their ``HOST:PORT`` in the thread of a request; may raise ``SpecWhisperError``.
    others : answers every other path.
    """

    def page(path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        if path != TARGETS_PATH:
            return others(path, accept)
        try:
            body = json.dumps([{"targets": list(find())}])
        except SpecWhisperError as error:  # Prometheus keeps the list that it has
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n".encode()
        return HTTPStatus.OK, "application/json", body.encode()

    return page


def metrics_page(registry: CollectorRegistry) -> Page:
    def page(path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        encode, media_type = choose_encoder(accept)
        return HTTPStatus.OK, media_type, encode(registry)

    return page


def serving_page(
    page: Page, host: str, port: int, tls: ServerTls | None, tokens: Tokens | None
) -> AbstractAsyncContextManager[str]:
    """Serve a page and yield its address; port 0 takes a free port.

    prometheus_client's own server knows no tokens, and one client that does not complete a TLS handshake
    stops it for all others.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received = dict(scope["headers"])
        headers = []
        try:
            if tokens is not None:
                tokens.name_of(received.get(b"authorization"))
            accept = received.get(b"accept", b"").decode("latin-1")
            status, media_type, body = await asyncio.to_thread(page, scope["path"], accept)
        except Unauthenticated as error:
            status, media_type, body = HTTPStatus.UNAUTHORIZED, "text/plain", f"{error}\n".encode()
            headers.append((b"www-authenticate", b"Bearer"))
        headers += [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    server = HttpServer(
        app,
        host,
        port,
        tls,
        max_connections=MAX_CONNECTIONS,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    return server.running()
