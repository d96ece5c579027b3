"""WebSocket messages: too large ones are refused, large audio parsed in a thread."""

import asyncio
import json

import pytest

from specwhisper.audio.decode import G711, decode_g711
from specwhisper.errors import InvalidRequest
from specwhisper.live import EndpointingOptions
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.live import read_message
from specwhisper_gateway.messages import (
    MAX_CONTROL_BYTES,
    MAX_MESSAGE_BYTES,
    read_object,
)
from specwhisper_gateway.realtime.settings import RealtimeSettings, nested
from specwhisper_gateway.sockets import Peer

APPEND = {"type": "input_audio_buffer.append"}
MANY = {f"k{number}": 1 for number in range(1_000)}


@pytest.mark.parametrize(
    ("message", "audio"),
    [
        pytest.param(
            APPEND | {"audio": "A" * MAX_CONTROL_BYTES, "b": [1] * 5_000}, "audio", id="beside audio"
        ),
        pytest.param({"values": [1] * 5_000}, "audio", id="values"),
        pytest.param(APPEND | {"audio": ["A"] * MAX_CONTROL_BYTES}, "audio", id="audio in pieces"),
        pytest.param(APPEND | {"event_id": "x" * MAX_CONTROL_BYTES, "audio": "AAAA"}, "audio", id="an id"),
        pytest.param({"session": {"prompt": "x" * MAX_CONTROL_BYTES}}, "audio", id="a prompt"),
        pytest.param({"type": "start", "audio": "x" * MAX_CONTROL_BYTES}, None, id="no event of audio"),
    ],
)
def test_only_audio_makes_a_message_large(message, audio):
    with pytest.raises(InvalidField) as refused:
        read_object(json.dumps(message), audio=audio)
    assert refused.value.code == "message_too_large"


def test_the_largest_allowed_message_is_read():
    append = APPEND | {"audio": "A" * (MAX_MESSAGE_BYTES - 100)}
    assert read_object(json.dumps(append), audio="audio") == append
    point = {"state": "A" * 16_384, "start_sample": 0}
    start = {"type": "start", "sample_rate": 16_000, "resume_point": point}
    found = read_message(json.dumps(start))
    assert len(found.resume_point.state) == 12_288


def test_an_error_does_not_repeat_a_long_key():
    with pytest.raises(InvalidField) as refused:
        RealtimeSettings().updated({"x" * 10_000: 1})
    assert len(str(refused.value)) < 300
    assert refused.value.code == "unknown_parameter"


def detecting(**turn_detection):
    return {"audio": {"input": {"turn_detection": turn_detection}}}


def test_the_silence_that_a_client_sets_ends_utterances_of_any_length():
    settings = RealtimeSettings().updated(detecting(silence_duration_ms=500))
    assert settings.endpointing == EndpointingOptions(silence_duration_ms=500, short_silence_ms=500)
    assert RealtimeSettings().updated(settings.describe()) == settings
    settings = settings.updated(detecting(silence_duration_ms=400, short_silence_ms=900))
    assert settings.endpointing == EndpointingOptions(silence_duration_ms=400, short_silence_ms=900)
    assert RealtimeSettings().updated(settings.describe()) == settings


def test_turn_detection_by_eagerness():
    settings = RealtimeSettings().updated(detecting(type="semantic_vad", eagerness="high"))
    assert settings.endpointing == EndpointingOptions(silence_duration_ms=200, short_silence_ms=400)
    described = settings.describe()["audio"]["input"]["turn_detection"]
    assert described == {"type": "semantic_vad", "eagerness": "high"}
    assert RealtimeSettings().updated(settings.describe()) == settings
    again = settings.updated(detecting(type="semantic_vad"))
    assert again.eagerness == "high"
    auto = settings.updated(detecting(type="semantic_vad", eagerness="auto"))
    assert auto.eagerness == "medium"
    by_silence = settings.updated(detecting(type="server_vad", threshold=0.7))
    assert by_silence.endpointing == EndpointingOptions(threshold=0.7)
    assert by_silence.eagerness is None


class Sender:
    """A client whose next message has always arrived already."""

    async def receive(self):
        return {"type": "websocket.receive", "text": "{}"}


async def test_other_tasks_run_between_messages():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(other())
    frames = Peer(Sender()).frames()
    for _ in range(50):
        await anext(frames)
    working.cancel()
    await frames.aclose()
    assert turns >= 49


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"type": "start"}, "sample_rate"),
        ({"sample_rate": 400}, "sample_rate"),
        ({"volume": 11}, "volume"),
        ({"type": "begin"}, "type"),
    ],
)
def test_messages_of_the_page_that_are_refused(message, param):
    start = {} if message == {"type": "start"} else {"type": "start", "sample_rate": 16_000}
    with pytest.raises(InvalidRequest) as refused:
        read_message(json.dumps(start | message))
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("audio_input", "param"),
    [
        ({"format": {"type": "audio/opus"}}, "format.type"),
        ({"format": {"type": "audio/pcmu", "rate": 16_000}}, "format.rate"),
        ({"transcription": {"languages": ["de"], "language": "en"}}, "transcription.languages"),
        ({"transcription": {"keywords": [1] * 1_000}}, "transcription.keywords[]"),
        ({"turn_detection": {"threshold": 0.96}}, "turn_detection.threshold"),
        ({"turn_detection": {"eagerness": "low"}}, "turn_detection.eagerness"),
        ({"turn_detection": {"type": "semantic_vad", "threshold": 0.5}}, "turn_detection.threshold"),
        (MANY, "k0"),
    ],
)
def test_settings_that_are_not_supported(audio_input, param):
    with pytest.raises(InvalidRequest) as refused:
        RealtimeSettings().updated({"audio": {"input": audio_input}})
    assert refused.value.param == f"session.audio.input.{param}"


@pytest.mark.parametrize("language", ["de-CH", "de_CH", "German"])
def test_an_update_changes_only_what_it_names(language):
    settings = RealtimeSettings().updated({"audio": {"input": {"transcription": {"language": language}}}})
    settings = settings.updated({"audio": {"input": {"turn_detection": None}}})
    assert (settings.languages, settings.endpointing) == (("de",), None)
    assert settings.describe()["audio"]["input"]["transcription"]["language"] == "de"


BETA = {
    "input_audio_format": "g711_ulaw",
    "input_audio_noise_reduction": {"type": "near_field"},
    "input_audio_transcription": {"language": "de", "temperature": 1, "delay": "low"},
    "turn_detection": {"type": "server_vad", "threshold": 0.7, "create_response": True},
    "include": ["item.input_audio_transcription.logprobs"],
    "instructions": "Be kind.",
}


def test_the_beta_has_the_same_settings_and_what_has_no_effect_is_ignored():
    ignored: list[InvalidField] = []
    settings = RealtimeSettings().updated(nested(BETA), ignored)
    assert (settings.audio_format.name, settings.audio_format.rate) == ("audio/pcmu", 8_000)
    assert (settings.languages, settings.endpointing.threshold) == (("de",), 0.7)
    assert {error.param.removeprefix("session.audio.input.") for error in ignored} == {
        *("noise_reduction", "transcription.temperature", "transcription.delay"),
        *("turn_detection.create_response", "session.include", "session.instructions"),
    }
    ignored.clear()
    assert RealtimeSettings().updated(nested(settings.describe_flat()), ignored) == settings
    assert RealtimeSettings().updated(settings.describe(), ignored) == settings
    assert ignored == []


@pytest.mark.parametrize(
    ("name", "beta", "law"), [("audio/pcmu", "g711_ulaw", G711.MULAW), ("audio/pcma", "g711_alaw", G711.ALAW)]
)
def test_a_telephones_format(name, beta, law):
    settings = RealtimeSettings().updated({"audio": {"input": {"format": {"type": name}}}})
    assert settings == RealtimeSettings().updated(nested({"input_audio_format": beta}))
    assert settings.describe_flat()["input_audio_format"] == beta
    assert settings.audio_format.decode(b"\x00\x7f\xff") == (decode_g711(b"\x00\x7f\xff", law), b"")
