"""Riva's clients may name the target as they like, unless names are strict."""

import logging

import grpc

from tests.rpc.riva_clients import (
    live_config,
    pcm_config,
    pieces,
    refusal,
    riva_client,
    service_settings,
    transcript,
)
from tests.rpc.services import all_free, recording, running_pair

PARAKEET = "parakeet-1.1b-en-US-asr-streaming-silero-vad-sortformer"  # LiveKit's default
NAMES = ("large-v3", "org/large")


async def test_any_name_is_the_target(client, caplog):
    caplog.set_level(logging.WARNING)
    pcm, texts = recording(1.0), []
    for name in ("", "scripted", PARAKEET, PARAKEET):
        response = await client.recognize(pcm, pcm_config(model=name))
        texts.append(transcript(response.results))
        assert await client.stream(pieces(pcm), live_config(model=name)) is not None
    assert texts[0]
    assert set(texts) == {texts[0]}
    logged = [record for record in caplog.records if record.getMessage() == "unknown model name"]
    assert [(record.model, record.used) for record in logged] == [(PARAKEET, "scripted")]


async def test_served_names_are_listed():
    async with running_pair(**service_settings(served_model_names=NAMES)) as (_, draft):
        async with riva_client(draft) as client:
            models = await client.models()
            assert [(each.model_name, each.parameters["type"]) for each in models] == [
                (name, kind) for name in NAMES for kind in ("online", "offline")
            ]
            assert all("en" in each.parameters["language_code"].split(",") for each in models)
            assert {each.model_name for each in await client.models(NAMES[1])} == {NAMES[1]}


async def test_strict_names_refuse_others():
    name = "x" * 10_000
    settings = service_settings(served_model_names=NAMES, strict_model_names=True)
    pcm = recording(1.0)
    async with running_pair(**settings) as (target, draft), riva_client(draft) as client:
        for call in (
            client.recognize(pcm, pcm_config(model=name)),
            client.stream(pieces(pcm), live_config(model=name)),
            client.models(name),
        ):
            status, details = await refusal(call)
            sentence = f"The model '{name[:100]}' does not exist here: request 'large-v3' or 'org/large'."
            assert (status, details) == (grpc.StatusCode.INVALID_ARGUMENT, sentence)
        await all_free(target, draft)
