"""``/v1/models``: the names of the draft server's target."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from openai.types import Model
from pydantic import BaseModel

from specwhisper_gateway.state import Gateway, gateway_of

router = APIRouter(prefix="/v1/models", tags=["Models"])


class Models(BaseModel):
    """A list in OpenAI's format."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("", response_model_exclude_none=True)
async def models(request: Request) -> Models:
    """List the names of the target, which stand for one model."""
    gateway = gateway_of(request)
    return Models(data=[_model(gateway, name) for name in await gateway.model_names.served()])


@router.get("/{model:path}", response_model_exclude_none=True)
async def model(request: Request, model: str) -> Model:
    """Return a model by a name that is served; it may contain slashes, as on the hub."""
    gateway = gateway_of(request)
    await gateway.model_names.check(model)
    return _model(gateway, model)


def _model(gateway: Gateway, name: str) -> Model:
    """Describe a model; its time of creation is the gateway's start."""
    return Model(id=name, created=gateway.started_s, object="model", owned_by="specwhisper")
