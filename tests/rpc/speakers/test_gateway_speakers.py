"""OpenAI's client receives the speakers of a recording."""

import asyncio
import base64
import io
import json
from contextlib import asynccontextmanager
from functools import partial

import openai
import pytest
import soundfile

from specwhisper_speakers.diarizer import Diarizer
from specwhisper_speakers.live_diarizer import LiveDiarizer
from specwhisper_speakers.settings import Speakers
from tests.rpc.client_scripts import RESPONSES, ScriptedTranscription, serving
from tests.rpc.gateways import MODEL, RECORDING, START, messages_of, page, running_gateway
from tests.rpc.live_scripts import TWO_UTTERANCES
from tests.rpc.services import eventually
from tests.speaker_models import HIGH_HZ, LOW_HZ, RATE, tones

TEXT = "Hello there. Bye."
EXPECTED = [("A", " Hello there.", 0.0, 1.5), ("Bob", " Bye.", 1.5, 2.25)]


@pytest.fixture(scope="module")
def diarizers(speaker_models):
    """Return what takes a process to make; the one for live audio is not to run."""
    return Diarizer(speaker_models), LiveDiarizer(speaker_models)


@pytest.fixture
def speakers(diarizers):
    return Speakers(*diarizers, num_jobs=1)


@asynccontextmanager
async def gateway_with(speakers, responses=RESPONSES):
    """Yield a gateway, its scripted draft server, and what asks for a recording's speakers."""
    service = ScriptedTranscription(responses)
    async with (
        serving(service) as address,
        running_gateway(address, extras={"speakers": speakers}) as gateway,
    ):
        create = gateway.api.audio.transcriptions.create
        yield gateway, service, partial(create, model=MODEL, response_format="diarized_json")


@pytest.fixture(scope="module")
def recording():
    """Return two voices at the times of the scripted segments."""
    file = io.BytesIO()
    soundfile.write(file, tones([(0.0, 1.5, HIGH_HZ), (1.5, 2.5, LOW_HZ)], 2.5), RATE, format="WAV")
    return "talk.wav", file.getvalue()


def sample(frequency: float, length_s: float = 2.0) -> str:
    """Return a voice as OpenAI's clients send it, a data URL."""
    file = io.BytesIO()
    soundfile.write(file, tones([(0.0, length_s, frequency)], length_s), RATE, format="WAV")
    return f"data:audio/wav;base64,{base64.b64encode(file.getvalue()).decode()}"


KNOWN = {"known_speaker_names": ["Bob"], "known_speaker_references": [sample(LOW_HZ)]}


async def test_each_segment_has_its_speaker(speakers, recording):
    async with gateway_with(speakers) as (_, service, diarized):
        reply = await diarized(file=recording, **KNOWN)
    assert (reply.task, reply.text, reply.duration) == ("transcribe", TEXT, 2.5)
    assert [(each.speaker, each.text, each.start, each.end) for each in reply.segments] == EXPECTED
    assert service.config.config.decoding.word_timestamps


async def test_a_stream_has_the_speakers_at_its_end(speakers, recording):
    async with gateway_with(speakers) as (_, _, diarized):
        events = [event async for event in await diarized(file=recording, stream=True, **KNOWN)]
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert "".join(deltas) == events[-1].text == TEXT
    *_, first, second, last = events
    assert last.type == "transcript.text.done"
    assert [(each.speaker, each.text, each.start, each.end) for each in (first, second)] == EXPECTED


@pytest.mark.parametrize(
    ("names", "references", "param", "sentence"),
    [
        (["Ann"], [], "known_speaker_names", "1 names and 0 references"),
        (["Ann", "Ann"], [sample(LOW_HZ)] * 2, "known_speaker_names", "a name of its own"),
        (list("abcde"), ["data:,"] * 5, "known_speaker_names", "at most 4"),
        (["Ann"], ["data:audio/wav;base64,%"], "known_speaker_references", "not base64"),
        (["Ann"], ["data:;base64,UklGRg=="], "known_speaker_references", "speaker 'Ann' cannot be used"),
    ],
)
async def test_samples_that_cannot_be_used_are_refused(
    speakers, recording, names, references, param, sentence
):
    async with gateway_with(speakers) as (_, service, diarized):
        with pytest.raises(openai.BadRequestError, match=sentence) as refusal:
            await diarized(file=recording, known_speaker_names=names, known_speaker_references=references)
    assert refusal.value.param == param
    assert service.config is None, "nothing was transcribed"


async def test_recordings_wait_for_their_turn(speakers, recording):
    async with gateway_with(speakers) as (gateway, _, diarized), speakers._jobs:
        asked = asyncio.create_task(diarized(file=recording))
        await eventually(lambda: gateway.num_sessions == 1)
        speakers._jobs.release()
        reply = await asked
        await speakers._jobs.acquire()
    assert [each.speaker for each in reply.segments] == ["A", "B"]


async def test_a_recording_that_cannot_be_decoded_is_one_error(speakers):
    async with gateway_with(speakers) as (gateway, _, diarized):
        with pytest.raises(openai.BadRequestError, match="cannot be decoded"):
            await diarized(file=("talk.wav", b"RIFF"))
        await eventually(lambda: gateway.num_sessions == 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_without_models_it_is_refused(stream):
    async with gateway_with(None) as (_, _, diarized):
        with pytest.raises(openai.BadRequestError, match="operator passes --speaker-models") as refusal:
            await diarized(file=RECORDING, stream=stream)
    assert (refusal.value.param, refusal.value.code) == ("response_format", "unsupported_value")


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_the_page_gets_the_speaker_of_each_utterance(speaker_models, diarizers, is_wanted):
    speakers = Speakers(diarizers[0], LiveDiarizer(speaker_models), num_jobs=1)
    talk = tones([(0.1, 1.2, HIGH_HZ), (1.3, 2.0, LOW_HZ), (2.0, 2.5, 0.0)], 2.5)
    async with (
        gateway_with(speakers, TWO_UTTERANCES) as (gateway, _, _),
        page(gateway, START | {"speakers": is_wanted}) as socket,
    ):
        await socket.send((talk * 32_767).astype("<i2").tobytes())
        await socket.send(json.dumps({"type": "finish"}))
        messages, _ = await messages_of(socket)
    assert messages[-1]["type"] == "done"
    named = [message for message in messages if message["type"] == "speaker"]
    of_both = [{"type": "speaker", "utterance": number, "speaker": "A"} for number in (1, 2)]
    assert named == of_both * is_wanted, "the second has too little speech for another speaker"
