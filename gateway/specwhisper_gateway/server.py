"""The gateway as a process: it listens, logs where, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import uvicorn

from specwhisper.observe.logs import LogLevel
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.addresses import cannot_listen, join_address
from specwhisper.rpc.handshakes import encrypted
from specwhisper.rpc.metrics_server import metrics_page, serving_page
from specwhisper.rpc.process import freeze_loaded, stop_signals
from specwhisper_gateway.app import create_app
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.state import Gateway
from specwhisper_gateway.transport.connections import HttpConnection, SocketConnection
from specwhisper_gateway.transport.heads import MAX_HEAD_BYTES
from specwhisper_gateway.transport.messages import MAX_MESSAGE_BYTES

logger = logging.getLogger(__name__)

KEEPALIVE_S = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class GatewayServer(uvicorn.Server):
    """Listens once it is constructed; :meth:`serve` answers until :meth:`stop`.

    Attributes
    ----------
    address : ``HOST:PORT`` where it listens.
    ready : set once it answers.
    metrics_address : ``HOST:PORT`` of the metrics, if they have a port of their own.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._metrics = GatewayMetrics()
        self._app = create_app(config, self._metrics)
        connections: Any = partial(HttpConnection, max_connections=config.max_connections)
        if config.tls is not None:
            connections = encrypted(connections, config.tls, config.max_connections)
        listening = uvicorn.Config(
            self._app,
            lifespan="on",
            log_config=None,  # the process configures logging
            log_level="warning" if config.log_level is LogLevel.INFO else None,  # we log start and stop
            access_log=False,  # the middleware logs requests
            server_header=False,
            proxy_headers=False,
            http=connections,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ws=SocketConnection,
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,  # audio does not shrink
            # A pong would wait for the audio that a client sends faster than it is transcribed.
            ws_ping_interval=None,
            timeout_graceful_shutdown=_whole_s(config.drain_timeout_s),
        )
        super().__init__(listening)
        self._socket = _listen(config.host, config.port)
        self.address = join_address(config.host, self._socket.getsockname()[1])
        self.ready = asyncio.Event()
        self.metrics_address: str | None = None
        self._metrics.watch_draining(lambda: self.should_exit)

    @property
    def num_transcriptions(self) -> int:
        """Open transcriptions."""
        gateway: Gateway = self._app.state.gateway
        return gateway.limiter.num_sessions

    def stop(self) -> None:
        """Refuse new requests, let open ones end within the drain timeout, then stop."""
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests until :meth:`stop`."""
        try:
            async with self._metrics_served():
                await super().serve(sockets or [self._socket])
        finally:
            self._socket.close()

    @asynccontextmanager
    async def _metrics_served(self) -> AsyncIterator[None]:
        """Serve the metrics if they have a port of their own."""
        config = self._config
        if not config.metrics or config.metrics_port is None:
            yield
            return
        page = metrics_page(self._metrics.collected)
        async with serving_page(
            page, config.metrics_host, config.metrics_port, config.tls, config.tokens
        ) as self.metrics_address:
            logger.info("metrics", extra={"address": self.metrics_address})
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Log the address once it answers."""
        await super().startup(sockets)
        logger.info("ready", extra={"address": self.address})
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Log the start and the end of the stop."""
        num_open = len(self.server_state.tasks)
        logger.info("draining", extra={"address": self.address, "open_requests": num_open})
        await super().shutdown(sockets)
        logger.info("stopped", extra={"address": self.address})

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to :func:`run`: uvicorn's handler ends with a status above 0."""
        yield


def _whole_s(seconds: float) -> int | None:
    """Return a time as uvicorn takes it: ``None`` has no limit."""
    return None if math.isinf(seconds) else math.ceil(seconds)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    # Every connection inherits it: TCP notices a machine that has vanished, even if nothing is sent to it.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small messages wait for 40 ms
    for name, seconds in KEEPALIVE_S.items():
        if hasattr(socket, name):  # not on every system
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return listening


async def run(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT; further signals change nothing."""
    configure_tracing("specwhisper-gateway")
    await serve_until_signal(GatewayServer(config))


async def serve_until_signal(server: GatewayServer) -> None:
    """Serve until SIGTERM or SIGINT."""
    with stop_signals(server.stop):
        freeze_loaded()
        await server.serve()
