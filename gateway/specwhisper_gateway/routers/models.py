"""``/v1/models``: what the draft server behind the gateway writes with."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from openai.types import Model
from pydantic import BaseModel

from specwhisper_gateway.errors import ModelNotFound
from specwhisper_gateway.state import Gateway, gateway_of

WHISPER_1 = "whisper-1"  # what programs that were written for OpenAI's API ask for

router = APIRouter(prefix="/v1/models", tags=["Models"])


class Models(BaseModel):
    """A list as OpenAI's API writes it."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("", response_model_exclude_none=True)
async def models(request: Request) -> Models:
    """Name the target, and the alias that stands for it whatever it is called."""
    gateway = gateway_of(request)
    names = dict.fromkeys((await _target(gateway), WHISPER_1))
    return Models(data=[_model(gateway, name) for name in names])


@router.get("/{model:path}", response_model_exclude_none=True)
async def model(request: Request, model: str) -> Model:
    """Tell whether there is such a model; its name may have slashes, as those of the hub have."""
    gateway = gateway_of(request)
    await check_model(gateway, model)
    return _model(gateway, model)


async def check_model(gateway: Gateway, name: str) -> None:
    """Refuse any model but the one there is."""
    if name == WHISPER_1:
        return
    target = await _target(gateway)
    if name != target:
        raise ModelNotFound(f"The model '{name}' does not exist here: ask for '{target}' or '{WHISPER_1}'.")


async def _target(gateway: Gateway) -> str:
    return (await gateway.health.get()).model.target


def _model(gateway: Gateway, name: str) -> Model:
    """Describe it; when it was made nobody knows, so it is as old as the gateway."""
    return Model(id=name, created=gateway.started_s, object="model", owned_by="specwhisper")
