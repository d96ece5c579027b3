"""The gateway as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline

from specwhisper import __version__
from specwhisper.observe.current_call import REQUEST_ID
from specwhisper.rpc.session_limiter import SessionLimiter
from specwhisper.settings.model_names import ModelNames
from specwhisper_client.api import TranscriptionClient
from specwhisper_gateway import live, page_files, service
from specwhisper_gateway.access_log import AccessLog
from specwhisper_gateway.audio import routes as audio
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.handlers import add_error_handlers
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.realtime import secret_routes
from specwhisper_gateway.realtime import session as realtime
from specwhisper_gateway.realtime.secrets import ClientSecrets
from specwhisper_gateway.state import CachedAnswer, Gateway
from specwhisper_gateway.transport.access import Access, bearer

DESCRIPTION = """Whisper transcription by speculative decoding, as OpenAI's audio API.

Point any OpenAI client at this server's `/v1`. A small draft model proposes tokens, a large target model
verifies many of them in one forward pass. The transcript is, token for token, that of the target alone.

Errors have OpenAI's format: `{"error": {"message", "type", "param", "code"}}`. A field that is not
supported is refused with 400, never ignored. A full server answers 429 with `Retry-After`, an
unavailable one 503.
"""


def create_app(config: GatewayConfig, metrics: GatewayMetrics) -> FastAPI:
    """Return the application; it connects to the draft server when a request arrives."""
    secrets = ClientSecrets()

    @asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        async with TranscriptionClient(config.server, config.server_credentials) as client:
            limiter = SessionLimiter("This gateway", config.max_sessions, config.max_sessions_per_token)
            metrics.watch_sessions(limiter)
            health = CachedAnswer(client.get_model)

            async def target() -> str:
                return (await health.get()).model.target

            names = ModelNames(config.served_model_names, is_strict=config.strict_model_names, target=target)
            app.state.gateway = Gateway(config, client, metrics, limiter, health, names, secrets)
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
    app.include_router(secret_routes.router, dependencies=with_key)
    app.include_router(realtime.router)
    app.include_router(live.router)
    app.include_router(page_files.router)
    app.include_router(service.health_router)
    if config.metrics and config.metrics_port is None and config.may_describe:
        app.include_router(service.metrics_router)
    add_error_handlers(app)
    if config.tokens is not None:
        app.add_middleware(Access, tokens=config.tokens, secrets=secrets)
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
