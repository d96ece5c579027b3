"""Metrics over HTTP, on a port of their own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from specwhisper.errors import InvalidRequest, Unauthenticated
from specwhisper.wire.addresses import join_address
from specwhisper.wire.tls import ServerTls
from specwhisper.wire.tokens import Tokens

logger = logging.getLogger(__name__)

SILENCE_S = 10.0  # behind which a scraper that says nothing is left
POLL_S = 0.25  # how long stopping may take

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@contextmanager
def serving_metrics(
    registry: CollectorRegistry, host: str, port: int, tls: ServerTls | None, tokens: Tokens | None
) -> Iterator[str]:
    """Serve a registry, in threads beside the event loop, and give the address; port 0 takes a free one.

    Connections are encrypted and callers asked for tokens where those of the calls are.
    """
    app: App = make_wsgi_app(registry)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = _Server(family, address, tls)
    except OSError as error:
        raise InvalidRequest(
            f"Cannot serve metrics on {join_address(host, port)} ({error.strerror}); is the port taken?"
        ) from error
    server.set_app(app if tokens is None else _for_known_callers(app, tokens))
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="metrics", daemon=True)
    thread.start()
    try:
        yield join_address(host, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_S

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: scrapes come every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, family: int, address: tuple[Any, ...], tls: ServerTls | None) -> None:
        self.address_family = family
        self._tls = tls
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service how this machine is called, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer, in the connection's own thread."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(SILENCE_S)
        with self._tls.context().wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note a scraper that broke off, or spoke something else."""
        logger.debug("scrape failed", exc_info=True)


def _for_known_callers(app: App, tokens: Tokens) -> App:
    def asking(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            tokens.name_of(environ.get("HTTP_AUTHORIZATION"))
        except Unauthenticated as error:
            status = HTTPStatus.UNAUTHORIZED
            headers = [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")]
            start_response(f"{status.value} {status.phrase}", headers)
            return [f"{error}\n".encode()]
        return app(environ, start_response)

    return asking
