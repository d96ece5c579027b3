"""Metrics over HTTP, on a port of their own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from time import monotonic
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from specwhisper.errors import Unauthenticated
from specwhisper.rpc.addresses import cannot_listen, join_address
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.tokens import Tokens

logger = logging.getLogger(__name__)

SILENCE_S = 10.0  # behind which a scraper that says nothing is left
REQUEST_S = 20.0  # for all of a connection; a scrape takes milliseconds, and Prometheus waits for ten seconds
MAX_CONNECTIONS = 16  # at once: each has a thread
MAX_WAITING = 128  # that the system keeps until then
POLL_S = 0.25  # how long stopping may take

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@asynccontextmanager
async def serving_metrics(
    registry: CollectorRegistry, host: str, port: int, tls: ServerTls | None, tokens: Tokens | None
) -> AsyncIterator[str]:
    """Serve a registry as Prometheus reads it, and give the address; see :func:`serving_page`."""
    async with serving_page(make_wsgi_app(registry), host, port, tls, tokens) as address:
        yield address


@asynccontextmanager
async def serving_page(
    app: App, host: str, port: int, tls: ServerTls | None, tokens: Tokens | None
) -> AsyncIterator[str]:
    """Serve an application in threads beside the event loop, and give the address; port 0 takes a free one.

    Connections are encrypted and callers asked for tokens where those of the calls are. Before they are, each
    has a thread: so there are few at once, each for a short while, and others wait until they are taken.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = _Server(family, address, tls)
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    server.set_app(app if tokens is None else _for_known_callers(app, tokens))
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="metrics", daemon=True)
    thread.start()
    try:
        yield join_address(host, server.server_address[1])
    finally:
        await asyncio.to_thread(_stop, server, thread)


def _stop(server: _Server, thread: threading.Thread) -> None:
    server.stop()
    thread.join()


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_S

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: scrapes come every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = MAX_WAITING

    def __init__(self, family: int, address: tuple[Any, ...], tls: ServerTls | None) -> None:
        self.address_family = family
        self._tls = tls
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._ends: dict[socket.socket, float] = {}  # of each connection, when it is to be over
        self._guard = threading.Lock()
        self._is_stopping = threading.Event()
        super().__init__(address, _Handler)

    def stop(self) -> None:
        """Take no more connections, and stop listening."""
        self._is_stopping.set()
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Bind without asking the name service how this machine is called, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread, once there is one for it; those behind it wait in the system."""
        while not self._free.acquire(timeout=POLL_S):
            self.service_actions()
            if self._is_stopping.is_set():
                self.shutdown_request(request)
                return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, in the connection's own thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer within a time."""
        if self._tls is None:
            with self._in_time(request):
                super().finish_request(request, client_address)
            return
        request.settimeout(SILENCE_S)
        context = self._tls.context()
        with (
            context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as encrypted,
            self._in_time(encrypted),
        ):
            encrypted.do_handshake()
            super().finish_request(encrypted, client_address)

    @contextmanager
    def _in_time(self, connection: socket.socket) -> Iterator[None]:
        """Have a connection hung up on that is open for longer, however little at a time it says or takes."""
        with self._guard:
            self._ends[connection] = monotonic() + REQUEST_S
        try:
            yield
        finally:
            with self._guard:
                del self._ends[connection]

    def service_actions(self) -> None:
        """Hang up on those whose time is over; whoever waits for them reads their end."""
        with self._guard:
            for connection, end_s in self._ends.items():
                if end_s < monotonic():
                    with suppress(OSError):  # it has gone by itself
                        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's, which says goodbye

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
