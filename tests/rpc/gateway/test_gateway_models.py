"""Requests may name the target as they like, unless names are strict."""

import logging
from typing import Any

import openai
import pytest

from specwhisper.settings.model_names import MAX_LOGGED
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import MODEL, RunningGateway, gateway_for
from tests.rpc.realtime import QUERY, refusal

OPENAIS = [
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-transcribe-diarize",
    "gpt-transcribe",
    "whisper-1",
]
NAMES = ("large-v3", "org/large")
STRICT = {"served_model_names": NAMES, "strict_model_names": True}


def update(model: str | None) -> dict[str, Any]:
    return {"type": "transcription", "audio": {"input": {"transcription": {"model": model}}}}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.model for record in caplog.records if record.getMessage() == "unknown model name"]


async def listed(gateway: RunningGateway) -> list[str]:
    return [model.id async for model in gateway.api.models.list()]


async def test_every_name_of_openais_is_the_target(caplog):
    caplog.set_level(logging.WARNING)
    async with gateway_for() as gateway:
        for name in [*OPENAIS, "large", "", *OPENAIS]:
            reply = await gateway.transcribe(model=name)
            assert reply.text == "Hello there. Bye."
        stream = await gateway.transcribe(model=OPENAIS[0], stream=True)
        assert [event async for event in stream][-1].text == "Hello there. Bye."
        assert await listed(gateway) == ["large", MODEL]
        found = await gateway.api.models.retrieve("large")
        assert (found.object, found.owned_by) == ("model", "specwhisper")
    assert warnings(caplog) == OPENAIS[:-1]  # once each


async def test_served_names_are_listed_and_found():
    names = (*NAMES, NAMES[0])
    async with gateway_for(served_model_names=names) as gateway:
        assert await listed(gateway) == list(NAMES)
        for name in NAMES:
            assert (await gateway.api.models.retrieve(name)).id == name
            assert (await gateway.transcribe(model=name)).text
        for name in ("large", MODEL):  # accepted in requests, but no name of /v1/models
            with pytest.raises(openai.NotFoundError, match="request 'large-v3' or 'org/large'"):
                await gateway.api.models.retrieve(name)
            assert (await gateway.transcribe(model=name)).text


async def test_strict_names_refuse_others(caplog):
    caplog.set_level(logging.WARNING)
    server = ScriptedTranscription()
    async with gateway_for(server, **STRICT) as gateway:
        for name in (MODEL, "large", OPENAIS[0], "x" * 10_000):
            with pytest.raises(openai.NotFoundError) as refused:
                await gateway.transcribe(model=name)
            error = refused.value
            assert (error.type, error.param) == ("invalid_request_error", "model")
            assert error.code == "model_not_found"
            shown = f"The model '{name[:100]}' does not exist here: request 'large-v3' or 'org/large'."
            assert error.body["message"] == shown
        assert server.config is None
        for name in (*NAMES, ""):
            assert (await gateway.transcribe(model=name)).text
    assert warnings(caplog) == []


async def test_strict_names_are_the_targets_and_whisper_1_by_default():
    async with gateway_for(strict_model_names=True) as gateway:
        for name in ("large", MODEL):
            assert (await gateway.transcribe(model=name)).text
        with pytest.raises(openai.NotFoundError, match="request 'large' or 'whisper-1'"):
            await gateway.transcribe(model=OPENAIS[0])


async def test_names_without_end_are_not_all_logged(caplog):
    caplog.set_level(logging.WARNING)
    async with gateway_for() as gateway:
        names = gateway.server.app.state.gateway.model_names
        for number in range(3 * MAX_LOGGED):
            assert await names.resolve(f"{number:>1000}") == "large"
            assert await names.resolve(f"model-{number}\n") == "large"
    assert len(warnings(caplog)) == MAX_LOGGED
    assert max(map(len, warnings(caplog))) <= 100


@pytest.mark.parametrize("model", [*OPENAIS, "gpt-realtime-whisper", "large", "", None])
async def test_a_realtime_session_reports_the_served_name(gateway, model):
    served = model if model in ("large", MODEL) else "large"
    async with gateway.api.realtime.connect(extra_query=QUERY, model=model or "") as connection:
        created = await connection.recv()
        assert created.session.audio.input.transcription.model == served
        for name in (MODEL, model):
            await connection.session.update(session=update(name))
            updated = await connection.recv()
        assert updated.type == "session.updated"
        assert updated.session.audio.input.transcription.model == served


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
