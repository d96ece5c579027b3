"""The realtime API refuses invalid events, and its connections end with a reason."""

import json

import pytest

from specwhisper.errors import PairMismatch, ServerFull, UnsupportedOption
from specwhisper_gateway.messages import MAX_MESSAGE_BYTES
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import gateway_for, running_gateway
from tests.rpc.live_scripts import EVERYTHING, TWO_UTTERANCES
from tests.rpc.realtime import (
    DELTA,
    MANUAL,
    PCM,
    base64_of,
    close_code,
    refusal,
    session,
    settings,
    turn,
    up_to,
)

FAILED = "conversation.item.input_audio_transcription.failed"


async def test_what_has_no_effect_is_ignored_with_a_warning(gateway):
    """Clients of OpenAI's API send such keys; the rest of the update applies."""
    update = settings(transcription={"language": "de", "temperature": 1}) | {"instructions": "Be kind."}
    async with session(gateway) as connection:
        await connection.send({"type": "session.update", "session": update, "event_id": "mine"})
        warning = json.loads(await connection.recv_bytes())
        updated = await connection.recv()
    assert (warning["type"], warning["warning"]["event_id"]) == ("warning", "mine")
    assert "session.instructions is not known." in warning["warning"]["message"]
    assert updated.session.audio.input.transcription.language == "de"


def hint(text: str, audio_start_ms: str) -> str:
    return f'{{"type": "input_audio_buffer.hint", "text": {text}, "audio_start_ms": {audio_start_ms}}}'


def append(audio: str) -> str:
    return f'{{"type": "input_audio_buffer.append", "audio": "{audio}"}}'


async def test_an_invalid_event_does_not_end_the_session():
    frames = {
        "no JSON": "invalid_json",
        "[" * 4_000: "invalid_json",
        "[" * 100_000: "message_too_large",
        '{"type": "x", "event_id": "\\ud800"}': "invalid_json",  # half a character cannot be encoded again
        '{"type": "response.create"}': "invalid_value",
        '{"type": ["input_audio_buffer.append"]}': "invalid_value",
        '{"type": "session.update", "session": "no object"}': "invalid_value",
        append("ünïcode="): "invalid_base64",
        append("A" * 1_000_001): "invalid_base64",
        '{"type": "input_audio_buffer.commit"}': "input_audio_buffer_commit_empty",
        '{"type": "input_audio_buffer.hint", "audio_start_ms": 0}': "missing_required_parameter",
        hint('"a"', "NaN"): "invalid_value",
        hint('"a"', "-1"): "invalid_value",
        hint(f'"{"a" * 4_001}"', "0"): "invalid_value",
        b"\0" * 640: "invalid_message",
    }
    async with gateway_for(ScriptedTranscription(EVERYTHING)) as gateway, session(gateway) as connection:
        for frame, code in frames.items():
            await connection.send_raw(frame)
            refused = await connection.recv()
            assert (refused.type, refused.error.code) == ("error", code), frame[:100]
        assert (await turn(connection))[-1].transcript == "Hello there."


async def test_a_frame_that_must_end_the_session(gateway):
    async with session(gateway) as connection:
        assert await close_code(connection, "x" * (MAX_MESSAGE_BYTES + 1)) == 1009
    figures = await gateway.all_answered()
    assert figures['sessions_total{code="1009",route="/v1/realtime"}'] == 1


async def test_connections_that_are_refused():
    async with serving(ScriptedTranscription()) as address:
        async with running_gateway(address) as gateway:
            error, code = await refusal(gateway, extra_query={"intent": "conversation"})
            assert (error.param, code) == ("intent", 1008)
            figures = await gateway.all_answered()
    assert figures['sessions_total{code="1008",route="/v1/realtime"}'] == 1
    async with running_gateway(address) as gateway:  # the draft server is lost
        error, code = await refusal(gateway)
    assert (error.code, code) == ("unavailable", 1013)


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (ServerFull("The draft server is full: try again later."), 1013, "rate_limit_exceeded"),
        (PairMismatch("They do not fit."), 1011, None),
    ],
)
async def test_errors_that_end_a_session(error, code, kind):
    server = ScriptedTranscription((), error=error, reads_everything=False)
    async with gateway_for(server) as gateway:
        async with session(gateway) as connection:
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            received = await connection.recv()
            assert (received.type, received.error.code, received.error.message) == ("error", kind, str(error))
            assert await close_code(connection) == code
        figures = await gateway.all_answered()
    assert figures[f'sessions_total{{code="{code}",route="/v1/realtime"}}'] == 1


async def test_a_refused_turn_does_not_end_the_session():
    error = UnsupportedOption("The prompt has too many tokens: shorten it.")
    async with gateway_for(ScriptedTranscription((), error=error)) as gateway, session(gateway) as connection:
        await connection.session.update(session=MANUAL)
        await connection.input_audio_buffer.append(audio=base64_of(PCM))
        await connection.input_audio_buffer.commit()
        events = await up_to(connection, "error")
        await connection.session.update(session=MANUAL)
        assert (await connection.recv()).type == "session.updated"
    assert events[-2].type == FAILED
    assert events[-2].error.message == events[-1].error.message == str(error)


async def test_a_client_that_disconnects():
    server = ScriptedTranscription(TWO_UTTERANCES[:3], reads_everything=False, hangs=True)
    async with gateway_for(server) as gateway:
        async with session(gateway) as connection:
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            await up_to(connection, DELTA)
            connection._connection.transport.abort()
        await server.left
        figures = await gateway.all_answered()
    assert figures["active_sessions"] == 0


async def test_a_stop_closes_with_1012():
    server = ScriptedTranscription(TWO_UTTERANCES[:3], reads_everything=False, hangs=True)
    async with serving(server) as address:
        async with running_gateway(address) as gateway:
            async with session(gateway) as connection:
                await connection.input_audio_buffer.append(audio=base64_of(PCM))
                await up_to(connection, DELTA)
                gateway.server.stop()
                assert await close_code(connection) == 1012
        await server.left
