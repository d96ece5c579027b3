"""``/v1/models``: the target model of the draft server."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from openai.types import Model
from pydantic import BaseModel

from specwhisper_gateway.errors import ModelNotFound
from specwhisper_gateway.state import Gateway, gateway_of

WHISPER_1 = "whisper-1"  # the name that OpenAI's API uses

router = APIRouter(prefix="/v1/models", tags=["Models"])


class Models(BaseModel):
    """A list in OpenAI's format."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("", response_model_exclude_none=True)
async def models(request: Request) -> Models:
    """List the target and its alias ``whisper-1``."""
    gateway = gateway_of(request)
    names = dict.fromkeys((await _target(gateway), WHISPER_1))
    return Models(data=[_model(gateway, name) for name in names])


@router.get("/{model:path}", response_model_exclude_none=True)
async def model(request: Request, model: str) -> Model:
    """Return a model; its name may contain slashes, as on the hub."""
    gateway = gateway_of(request)
    await check_model(gateway, model)
    return _model(gateway, model)


async def check_model(gateway: Gateway, name: str) -> None:
    """Raise :class:`ModelNotFound` unless the name is the target's or its alias."""
    if name == WHISPER_1:
        return
    target = await _target(gateway)
    if name != target:
        raise ModelNotFound(f"The model '{name}' does not exist here: request '{target}' or '{WHISPER_1}'.")


async def _target(gateway: Gateway) -> str:
    return (await gateway.health.get()).model.target


def _model(gateway: Gateway, name: str) -> Model:
    """Describe a model; its time of creation is the gateway's start."""
    return Model(id=name, created=gateway.started_s, object="model", owned_by="specwhisper")
