"""Riva's clients may name the target as they like, unless names are strict."""

import logging

import grpc
import pytest

from tests.rpc.riva_clients import (
    live_config,
    pcm_config,
    pieces,
    refusal,
    riva_client,
    service_settings,
    transcript,
)
from tests.rpc.services import all_free, is_one_sentence, recording, running_pair

PARAKEET = "parakeet-1.1b-en-US-asr-streaming-silero-vad-sortformer"  # LiveKit's default
NAMES = ("large-v3", "org/large")
TYPES = ["online", "offline"]


async def listed(client, name: str = "") -> list[tuple[str, str]]:
    return [(model.model_name, model.parameters["type"]) for model in await client.models(name)]


async def test_any_name_is_the_target(client, caplog):
    caplog.set_level(logging.WARNING)
    pcm, texts = recording(1.0), []
    for name in ("", "scripted", "whisper-1", PARAKEET, PARAKEET):
        response = await client.recognize(pcm, pcm_config(model=name))
        texts.append(transcript(response.results))
        assert await client.stream(pieces(pcm), live_config(model=name)) is not None
    assert texts[0]
    assert set(texts) == {texts[0]}
    logged = [record for record in caplog.records if record.getMessage() == "unknown model name"]
    assert [(record.model, record.used) for record in logged] == [(PARAKEET, "scripted")]


async def test_served_names_are_listed(client):
    assert await listed(client) == [(name, kind) for name in ("scripted", "whisper-1") for kind in TYPES]
    assert await listed(client, "scripted") == [("scripted", kind) for kind in TYPES]
    models = await client.models()
    assert all("en" in model.parameters["language_code"].split(",") for model in models)
    settings = service_settings(served_model_names=NAMES)
    async with running_pair(**settings) as (_, draft), riva_client(draft) as client:
        assert await listed(client) == [(name, kind) for name in NAMES for kind in TYPES]
        assert await listed(client, NAMES[1]) == [(NAMES[1], kind) for kind in TYPES]
        status, details = await refusal(client.models(PARAKEET))  # accepted in requests, but no model's name
        assert (status, is_one_sentence(details)) == (grpc.StatusCode.INVALID_ARGUMENT, True)


@pytest.mark.parametrize("name", ["scripted", "x" * 10_000])
async def test_strict_names_refuse_others(name):
    settings = service_settings(served_model_names=NAMES, strict_model_names=True)
    pcm = recording(1.0)
    async with running_pair(**settings) as (target, draft), riva_client(draft) as client:
        for call in (
            client.recognize(pcm, pcm_config(model=name)),
            client.stream(pieces(pcm), live_config(model=name)),
            client.models(name),
        ):
            status, details = await refusal(call)
            assert status is grpc.StatusCode.INVALID_ARGUMENT
            assert (
                details == f"The model '{name[:100]}' does not exist here: request 'large-v3' or 'org/large'."
            )
        for known in (*NAMES, ""):
            assert (await client.recognize(pcm, pcm_config(model=known))).results
        await all_free(target, draft)
