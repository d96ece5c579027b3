"""The gateway as a process: it listens, logs where, and stops in order."""

from __future__ import annotations

import logging
import math
import socket
from contextlib import nullcontext

from specwhisper.observe.logs import LogLevel
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.http_server import HttpServer
from specwhisper.rpc.metrics_server import metrics_page, serving_page
from specwhisper.rpc.process import freeze_loaded, stop_signals
from specwhisper_gateway.app import create_app
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.state import Gateway
from specwhisper_gateway.transport.messages import MAX_MESSAGE_BYTES

logger = logging.getLogger(__name__)


class GatewayServer(HttpServer):
    """Listens once it is constructed; :meth:`serve` answers until :meth:`stop`.

    Attributes
    ----------
    metrics_address : ``HOST:PORT`` of the metrics, if they have a port of their own.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.metrics_address: str | None = None
        metrics = GatewayMetrics()
        metrics.draining.set_function(lambda: self.should_exit)
        self.app = create_app(config, metrics)
        self._metrics_served = (
            serving_page(
                metrics_page(metrics.collected),
                config.metrics_host,
                config.metrics_port,
                config.tls,
                config.tokens,
            )
            if config.metrics and config.metrics_port is not None
            else nullcontext()
        )
        drain_s = config.drain_timeout_s
        super().__init__(
            self.app,
            config.host,
            config.port,
            config.tls,
            max_connections=config.max_connections,
            # We log start and stop. Bytes that are not HTTP are not worth a warning.
            log_level="error" if config.log_level is LogLevel.INFO else None,
            lifespan="on",
            ws="websockets-sansio",
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,  # audio does not shrink
            # A pong would wait for the audio that a client sends faster than it is transcribed.
            ws_ping_interval=None,
            timeout_graceful_shutdown=None if math.isinf(drain_s) else math.ceil(drain_s),
        )

    @property
    def num_transcriptions(self) -> int:
        gateway: Gateway = self.app.state.gateway
        return gateway.limiter.num_sessions

    def stop(self) -> None:
        """Refuse new requests, let open ones end within the drain timeout, then stop."""
        if not self.should_exit:
            num_open = len(self.server_state.tasks)
            logger.info("draining", extra={"address": self.address, "open_requests": num_open})
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        async with self._metrics_served as self.metrics_address:
            if self.metrics_address is not None:
                logger.info("metrics", extra={"address": self.metrics_address})
            await super().serve(sockets)
        logger.info("stopped", extra={"address": self.address})

    async def on_ready(self) -> None:
        if not self.ready.is_set():
            logger.info("ready", extra={"address": self.address})
        await super().on_ready()


async def run(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT; further signals change nothing."""
    configure_tracing("specwhisper-gateway")
    await serve_until_signal(GatewayServer(config))


async def serve_until_signal(server: GatewayServer) -> None:
    with stop_signals(server.stop):
        freeze_loaded()
        await server.serve()
