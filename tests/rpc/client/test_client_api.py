"""The Python client against a scripted draft server."""

import asyncio

import numpy as np
import pytest
import soundfile

from specwhisper import __version__
from specwhisper.audio.decode import decode_file
from specwhisper.audio.recording import log_mel_max
from specwhisper.errors import (
    InvalidAudio,
    InvalidRequest,
    MessageTooLarge,
    ServerFull,
    SpecWhisperError,
    UnsupportedOption,
)
from specwhisper.options import DecodingOptions, Padding, Task
from specwhisper.types import Mode, Segment
from specwhisper.wire import CLIENT_PROTOCOL_VERSION
from specwhisper.wire.codec import decoding_options_to_proto
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.api import TranscriptionClient
from tests.rpc.client_scripts import RESPONSES, ScriptedTranscription, serving

SEGMENTS = (
    Segment(0.0, 1.5, (50365, 440, 50440), " Hello there.", 0.75, language="en"),
    Segment(1.5, 2.25, (50440, 291, 50478), " Bye.", 0.5, language="en"),
)


def write_noise(path, duration_s, rate=16_000, num_channels=1):
    rng = np.random.default_rng(0)
    samples = rng.integers(-3_000, 3_000, (int(duration_s * rate), num_channels)).astype(np.int16)
    soundfile.write(path, samples, rate)
    return path


@pytest.fixture
def noise(tmp_path):
    return write_noise(tmp_path / "noise.wav", 2.5)


async def test_updates_then_the_transcript(noise):
    server = ScriptedTranscription()
    async with serving(server) as address, TranscriptionClient(address) as client:
        transcription = client.stream_file(noise)
        updates = [update async for update in transcription]
        transcript = transcription.result
    assert [
        (u.segments, u.verified_text, u.stable_text, u.tentative_text, u.duration_s) for u in updates
    ] == [
        ((), " Hello", " their", " bye", 2.5),
        (SEGMENTS[:1], " Bye", "", ".", 2.5),
        (SEGMENTS[1:], "", "", "", 2.5),
    ]
    assert transcript.segments == SEGMENTS
    assert transcript.text == "Hello there. Bye."
    assert transcript.language == "en"
    assert (transcript.model.target, transcript.model.draft) == ("large", "tiny")
    assert (transcript.model.mode, transcript.model.gamma) == (Mode.FULL, 5)
    assert transcript.stats.acceptance_rate == 0.75
    assert transcript.stats.tokens_per_forward == 2.5
    assert transcript.stats.acceptance_histogram == [1, 0, 3]
    assert transcript.duration_s == 2.5
    assert transcript.real_time_factor == transcript.elapsed_s / 2.5 > 0
    assert server.audio == b"".join(decode_file(noise))
    assert max(server.message_sizes) <= 32 * 1024
    assert not server.config.config.decoding.log_mel_max, "it is short: not measured"


async def test_a_long_recording_is_measured_beforehand_and_sent_whole(tmp_path):
    path = write_noise(tmp_path / "long.wav", 31, rate=22_050, num_channels=2)

    class Asked(ScriptedTranscription):
        async def GetModel(self, request, context):
            raise AssertionError("one round trip more, and a target that is away for a moment ends it")

    server = Asked()
    async with serving(server) as address, TranscriptionClient(address) as client:
        await client.transcribe_file(path, padding="zero")
    maxima = log_mel_max(decode_file(path), [80, 128], Padding.ZERO)
    assert server.config.config.decoding.log_mel_max == maxima
    assert server.audio == b"".join(decode_file(path))
    assert not server.config.interim_results


async def test_the_request_has_the_callers_options(noise):
    server = ScriptedTranscription()
    options = DecodingOptions.greedy(language="de", task=Task.TRANSLATE, timestamps=False, max_new_tokens=7)
    async with serving(server) as address, TranscriptionClient(address) as client:
        transcription = client.stream_file(noise, options, mode=Mode.SYNC, gamma=3, with_statistics=True)
        statistics = [update.statistics async for update in transcription]
    assert (statistics[:-1], statistics[-1].num_committed) == ([None, None], 10)
    assert server.config == pb.StreamingRecognitionConfig(
        interim_results=True,
        with_statistics=True,
        with_resume_points=True,
        with_heartbeats=True,
        config=pb.RecognitionConfig(
            encoding=decoding_pb2.AUDIO_ENCODING_LINEAR16,
            sample_rate_hertz=16_000,
            audio_channel_count=1,
            mode="MODE_SYNC",
            gamma=3,
            decoding=decoding_options_to_proto(options),
            channel="mix",
            container_times=True,
            protocol_version=CLIENT_PROTOCOL_VERSION,
            software_version=__version__,
        ),
    )


async def test_recognize_sends_the_file_as_it_is(noise):
    server = ScriptedTranscription()
    async with serving(server) as address, TranscriptionClient(address) as client:
        transcript = await client.recognize(noise.read_bytes(), gamma=2)
    assert server.recognized.audio == noise.read_bytes()
    assert server.recognized.config == pb.RecognitionConfig(
        gamma=2,
        decoding=decoding_options_to_proto(DecodingOptions()),
        channel="mix",
        container_times=True,
        protocol_version=CLIENT_PROTOCOL_VERSION,
        software_version=__version__,
    )
    assert transcript.segments == SEGMENTS
    assert transcript.duration_s == 2.5


@pytest.mark.parametrize(
    ("error", "after"), [(ServerFull("All 16 places are taken."), 0), (UnsupportedOption("No 'xx' here."), 2)]
)
async def test_a_servers_error_is_raised_unchanged_before_all_audio_is_sent(tmp_path, error, after):
    path = write_noise(tmp_path / "long.wav", 60)
    server = ScriptedTranscription(RESPONSES[:after], error=error, reads_everything=False)
    async with serving(server) as address, TranscriptionClient(address) as client:
        transcription = client.stream_file(path)
        updates = []
        with pytest.raises(type(error), match=f"^{error}$"):
            async for update in transcription:
                updates.append(update)
        assert len(updates) == after
        with pytest.raises(SpecWhisperError, match="has not ended"):
            _ = transcription.result


async def test_a_refused_whole_recording(noise):
    server = ScriptedTranscription(error=InvalidRequest("Not like that."))
    async with serving(server) as address, TranscriptionClient(address) as client:
        with pytest.raises(InvalidRequest, match="Not like that"):
            await client.recognize(noise.read_bytes())
        with pytest.raises(MessageTooLarge, match="300"):
            await client.recognize(bytes(300_000))


async def test_a_server_that_ends_without_a_response_is_an_error(noise):
    async with serving(ScriptedTranscription([])) as address, TranscriptionClient(address) as client:
        with pytest.raises(SpecWhisperError, match="without naming its model"):
            await client.transcribe_file(noise)


async def test_a_file_that_breaks_on_the_way_ends_the_call(tmp_path):
    path = write_noise(tmp_path / "long.flac", 60)
    server = ScriptedTranscription()
    async with serving(server) as address, TranscriptionClient(address) as client:
        transcription = client.stream_file(path, DecodingOptions.greedy(log_mel_max={80: 1.0}, strict=True))
        path.write_bytes(path.read_bytes()[:-1_000])
        with pytest.raises(InvalidAudio, match="is damaged: about"):
            async for _ in transcription:
                pass
        await server.left


async def test_leaving_the_loop_ends_the_call(noise):
    server = ScriptedTranscription(hangs=True)
    async with serving(server) as address, TranscriptionClient(address) as client:
        updates = aiter(client.stream_file(noise))
        assert await anext(updates)
        await updates.aclose()
        await server.left
        server.left = asyncio.get_running_loop().create_future()
        server.has_read_everything.clear()
        task = asyncio.create_task(client.transcribe_file(noise))
        await server.has_read_everything.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.left
