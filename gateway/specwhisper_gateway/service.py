"""``/health``, ``/metrics`` and ``/v1/models``."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from openai.types import Model
from pydantic import BaseModel, Field

from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper.rpc.metrics_server import metrics_page
from specwhisper_gateway.access_log import LIVE_ROUTE, has_key
from specwhisper_gateway.state import Gateway, gateway_of

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
    page = metrics_page(gateway_of(request).metrics.collected)
    _, media_type, body = page("/metrics", request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": media_type})


models_router = APIRouter(prefix="/v1/models", tags=["Models"])


class Models(BaseModel):
    """A list in OpenAI's format."""

    object: Literal["list"] = "list"
    data: list[Model]


@models_router.get("", response_model_exclude_none=True)
async def models(request: Request) -> Models:
    """List the names of the target, which stand for one model."""
    gateway = gateway_of(request)
    return Models(data=[_model(gateway, name) for name in await gateway.model_names.served()])


@models_router.get("/{model:path}", response_model_exclude_none=True)
async def model(request: Request, model: str) -> Model:
    """Return a model by a name that is served; it may contain slashes, as on the hub."""
    gateway = gateway_of(request)
    await gateway.model_names.check(model)
    return _model(gateway, model)


def _model(gateway: Gateway, name: str) -> Model:
    """Describe a model; its time of creation is the gateway's start."""
    return Model(id=name, created=gateway.started_s, object="model", owned_by="specwhisper")
