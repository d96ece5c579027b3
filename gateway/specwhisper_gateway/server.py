"""The gateway: an ASGI application, and the process that serves it and stops in order."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial

from fastapi import Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline

from specwhisper import __version__
from specwhisper.observe.current_call import REQUEST_ID
from specwhisper.observe.logs import LogLevel
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.http_server import HttpServer
from specwhisper.rpc.metrics_server import metrics_page, serving_page
from specwhisper.rpc.process import freeze_loaded, stop_signals
from specwhisper.rpc.session_limiter import SessionLimiter
from specwhisper.settings.model_names import ModelNames
from specwhisper_client.api import TranscriptionClient
from specwhisper_gateway import live, page_files, service
from specwhisper_gateway.access_log import AccessLog
from specwhisper_gateway.audio import routes as audio
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.messages import MAX_MESSAGE_BYTES
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.realtime import secrets
from specwhisper_gateway.realtime import session as realtime
from specwhisper_gateway.refusals import Access, add_error_handlers, bearer
from specwhisper_gateway.state import CachedAnswer, Gateway

logger = logging.getLogger(__name__)

DESCRIPTION = """Whisper transcription by speculative decoding, as OpenAI's audio API.

Point any OpenAI client at this server's `/v1`. A small draft model proposes tokens, a large target model
verifies many of them in one forward pass. The transcript is, token for token, that of the target alone.

Errors have OpenAI's format: `{"error": {"message", "type", "param", "code"}}`. A field that is not
supported is refused with 400, never ignored. A full server answers 429 with `Retry-After`, an
unavailable one 503.
"""


def create_app(config: GatewayConfig, metrics: GatewayMetrics) -> FastAPI:
    """Return the application; it connects to the draft server when a request arrives."""
    client_secrets = secrets.ClientSecrets()

    @asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        async with TranscriptionClient(config.server, config.server_credentials) as client:
            limiter = SessionLimiter("This gateway", config.max_sessions, config.max_sessions_per_token)
            metrics.watch_sessions(limiter)
            health = CachedAnswer(client.get_model)

            async def target() -> str:
                return (await health.get()).model.target

            names = ModelNames(config.served_model_names, is_strict=config.strict_model_names, target=target)
            app.state.gateway = Gateway(config, client, metrics, limiter, health, names, client_secrets)
            try:
                yield
            finally:
                if config.speakers is not None:
                    await config.speakers.close()

    # The offline API page loads nothing from other machines.
    make = FastAPIOffline if config.may_describe else partial(FastAPI, openapi_url=None)
    app: FastAPI = make(
        redoc_url=None,
        title="specwhisper",
        version=__version__,
        description=DESCRIPTION,
        lifespan=connected,
    )
    with_key = [Depends(bearer)]
    app.include_router(audio.router, dependencies=with_key)
    app.include_router(service.models_router, dependencies=with_key)
    app.include_router(secrets.router, dependencies=with_key)
    app.include_router(realtime.router)
    app.include_router(live.router)
    app.include_router(page_files.router)
    app.include_router(service.health_router)
    if config.metrics and config.metrics_port is None and config.may_describe:
        app.include_router(service.metrics_router)
    add_error_handlers(app)
    if config.tokens is not None:
        app.add_middleware(Access, tokens=config.tokens, secrets=client_secrets)
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allow_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),  # OpenAI's client sends headers of its own
            expose_headers=(REQUEST_ID, "retry-after"),
        )
    app.add_middleware(AccessLog, metrics=metrics)
    return app


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
