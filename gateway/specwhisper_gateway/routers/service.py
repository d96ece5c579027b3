"""``/health``, ``/health/live`` and ``/metrics``, for operators."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper_gateway.access_log import LIVE_ROUTE, has_key
from specwhisper_gateway.state import gateway_of

health_router = APIRouter(tags=["Service"])
metrics_router = APIRouter(tags=["Service"])


class Live(BaseModel):
    """The gateway answers requests."""

    status: Literal["ok"] = "ok"


class Health(Live):
    """The draft server's models; callers without a key see the status alone."""

    target_model: str = Field(description="Name of the target model.")
    draft_model: str = Field(description="Name of the draft model; empty if there is none.")
    mode: str = Field(description="Mode of sessions without a mode of their own.")
    languages: list[str] = Field(description="Language codes that the target knows.")
    max_sessions: int = Field(description="Limit of concurrent transcriptions; above it, 429.")
    software_version: str = Field(description="Version of the draft server.")
    allows_latency_injection: bool = Field(description="Whether live sessions may add latency.")


@health_router.get(LIVE_ROUTE)
async def live() -> Live:
    """Answer 200, whether or not the draft server answers."""
    return Live()


@health_router.get("/health")
async def health(request: Request) -> Health | Live:
    """Return the models; 503 if the draft server or its target does not answer."""
    gateway = gateway_of(request)
    is_anonymous = gateway.config.tokens is not None and not has_key(request)
    try:
        server = await gateway.health.get()
    except SpecWhisperError as error:
        if is_anonymous:
            raise TargetUnavailable("This gateway cannot transcribe at present.") from error
        raise
    if is_anonymous:
        return Live()
    return Health(
        target_model=server.model.target,
        draft_model=server.model.draft,
        mode=server.model.mode.value,
        languages=list(server.languages),
        max_sessions=server.max_sessions,
        software_version=server.software_version,
        allows_latency_injection=server.allows_latency_injection,
    )


@metrics_router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "All metrics."}},
)
async def metrics(request: Request) -> Response:
    """Return all metrics in Prometheus' format."""
    body, media_type = gateway_of(request).metrics.write(request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": media_type})
