"""Requests may name the target as they like, unless names are strict."""

from typing import Any

import openai
import pytest

from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import MODEL, gateway_for
from tests.rpc.realtime import QUERY, refusal

NAMES = ("large-v3", "org/large")
STRICT = {"served_model_names": NAMES, "strict_model_names": True}


def update(model: str | None) -> dict[str, Any]:
    return {"type": "transcription", "audio": {"input": {"transcription": {"model": model}}}}


async def test_strict_names_of_realtime_sessions():
    async with gateway_for(**STRICT) as gateway:
        error, code = await refusal(gateway, model="gpt-realtime-whisper")
        assert (error.code, error.param, code) == ("model_not_found", "model", 1008)
        assert error.message.endswith("request 'large-v3' or 'org/large'.")
        async with gateway.api.realtime.connect(extra_query=QUERY) as connection:
            created = await connection.recv()
            assert created.session.audio.input.transcription.model == NAMES[0]
            await connection.send({"type": "session.update", "session": update(MODEL), "event_id": "mine"})
            refused = await connection.recv()
            assert (refused.error.code, refused.error.param) == ("model_not_found", "model")
            assert refused.error.event_id == "mine"
            await connection.session.update(session=update(NAMES[1]))  # the session continues
            updated = await connection.recv()
            assert updated.session.audio.input.transcription.model == NAMES[1]


async def test_any_name_is_the_target(gateway):
    for name in ("gpt-4o-transcribe", MODEL, "large", ""):
        assert (await gateway.transcribe(model=name)).text == "Hello there. Bye."
    assert [model.id async for model in gateway.api.models.list()] == ["large", MODEL]
    found = await gateway.api.models.retrieve("large")
    assert (found.object, found.owned_by) == ("model", "specwhisper")


async def test_strict_names_refuse_others():
    server = ScriptedTranscription()
    async with gateway_for(server, **STRICT) as gateway:
        with pytest.raises(openai.NotFoundError) as refused:
            await gateway.transcribe(model="x" * 10_000)
        error = refused.value
        assert (error.type, error.param, error.code) == ("invalid_request_error", "model", "model_not_found")
        shown = f"The model '{'x' * 100}' does not exist here: request 'large-v3' or 'org/large'."
        assert error.body["message"] == shown
        assert server.config is None
        assert (await gateway.transcribe(model=NAMES[1])).text
        assert (await gateway.api.models.retrieve(NAMES[1])).id == NAMES[1]
        with pytest.raises(openai.NotFoundError):
            await gateway.api.models.retrieve("large")
