"""``/health``, ``/health/live`` and ``/metrics``: for those who operate the gateway."""

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
    """That a request would be answered."""

    status: Literal["ok"] = "ok"


class Health(Live):
    """What the draft server reports of itself; callers without a key see the status alone."""

    target_model: str = Field(description="The model whose text this is.")
    draft_model: str = Field(description="The model that drafts; empty where none does.")
    mode: str = Field(description="How they work together.")
    languages: list[str] = Field(description="Codes of the languages that the target knows.")
    max_sessions: int = Field(description="Transcriptions at once; more are answered with 429.")
    software_version: str = Field(description="Of the draft server.")
    allows_latency_injection: bool = Field(description="Whether live streams may add latency.")


@health_router.get(LIVE_ROUTE)
async def live() -> Live:
    """Tell that the gateway answers, whoever is away behind it: restarting it would bring nobody back."""
    return Live()


@health_router.get("/health")
async def health(request: Request) -> Health | Live:
    """Report which models answer; 503 where the draft server or its target does not."""
    gateway = gateway_of(request)
    is_stranger = gateway.config.tokens is not None and not has_key(request)
    try:
        server = await gateway.health.get()
    except SpecWhisperError as error:
        if is_stranger:
            raise TargetUnavailable("This gateway cannot transcribe at present.") from error
        raise
    if is_stranger:
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
    responses={200: {"content": {"text/plain": {}}, "description": "All figures."}},
)
async def metrics(request: Request) -> Response:
    """Give all figures, in the format that Prometheus reads."""
    body, media_type = gateway_of(request).metrics.write(request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": media_type})
