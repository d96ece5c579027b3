"""A recording whose draft server is lost continues with the same text."""

import pytest

from experiments.common.models.checkpoints import Shape, save_checkpoint
from experiments.common.models.scripted import END, MULTILINGUAL
from specwhisper.errors import InvalidRequest, TargetUnavailable
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import Mode
from specwhisper.wire import PROTOCOL_VERSION
from specwhisper.wire.v1 import resume_point_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.api import TranscriptionClient
from tests.nightly import NIGHTLY, mostly_nightly
from tests.rpc.draft.test_options import MODES, OPTIONS, PCM, speaker, target_only, written
from tests.rpc.network import cut_clients
from tests.rpc.services import (
    MAX_SESSIONS,
    all_free,
    audio_requests,
    draft_server,
    error_of,
    eventually,
    opening,
    recording,
    refusal,
    resume_point_of,
    scripted_checkpoint,
    slowed,
    target_alone,
    target_server,
    wav,
)

pytestmark = pytest.mark.usefixtures("fast_retries")


def pair():
    """Yield a target, and a function that starts a draft server for it."""
    return target_server(
        slowed(speaker(MAX_SESSIONS)), scripted_checkpoint(vocabulary=MULTILINGUAL)
    ), lambda target, **settings: draft_server(
        target.address,
        speaker(MAX_SESSIONS, error_rate=0.2),
        scripted_checkpoint("draft", vocabulary=MULTILINGUAL),
        **settings,
    )


async def check_cut(tmp_path, options: DecodingOptions, mode: Mode, cuts: list[int]) -> int:
    """Transcribe a file over streams that break; return how many did."""
    opening, draft_of = pair()
    path = wav(tmp_path / "audio.wav", PCM)
    async with (
        opening as target,
        draft_of(target) as draft,
        cut_clients(draft.address, cuts) as (network, cutting),
        TranscriptionClient(network.address) as client,
    ):
        transcription = client.stream_file(path, options, mode=mode, interim_results=True)
        segments = [segment async for update in transcription for segment in update.segments]
        await all_free(target, draft)
    expected = target_only(options)
    assert written(segments) == written(transcription.result.segments) == written(expected.segments)
    assert dict(transcription.result.language_probs) == pytest.approx(dict(expected.language_probs))
    assert transcription.num_resumes == cutting.num_cut
    return cutting.num_cut


@pytest.fixture
def reports_every_commit(monkeypatch):
    """Make draft servers report every commit, with a resume point."""
    monkeypatch.setattr("specwhisper_draft_server.session.INTERVAL_S", 0.0)
    monkeypatch.setattr("specwhisper_draft_server.responses.INTERVAL_TOKENS", 1)


@pytest.mark.parametrize("mode", mostly_nightly(MODES[::-1]))
async def test_wherever_a_stream_breaks_the_text_is_the_same(mode, tmp_path, reports_every_commit):
    options = OPTIONS["detected language"]
    num_cut = 0
    for first in range(1, 17, 3 if NIGHTLY else 7):
        num_cut += await check_cut(tmp_path, options, mode, [first, first + 1, 1, 2, 3, 4])
    assert num_cut > (12 if NIGHTLY else 6)


@pytest.mark.parametrize("name", mostly_nightly(list(OPTIONS)[::-1]))
async def test_every_option_outlives_the_draft_server(name, tmp_path, reports_every_commit):
    assert await check_cut(tmp_path, OPTIONS[name], Mode.FULL, [2, 3, 1, 5, 2, 1, 8, 1, 1, 13])


async def test_a_long_recording_continues_far_from_its_beginning(tmp_path, reports_every_commit):
    """It continues later than audio may be sent ahead of a window."""
    path = wav(tmp_path / "audio.wav", recording(200.0))
    expected = [s.tokens for s in target_alone(200.0).segments]
    async with (
        target_server() as target,
        draft_server(target.address, drafts=False, mode=Mode.TARGET_ONLY) as draft,
    ):
        for cut in range(10, 200, 5 if NIGHTLY else 45):
            async with (
                cut_clients(draft.address, [cut]) as (network, cutting),
                TranscriptionClient(network.address) as client,
            ):
                transcript = await client.transcribe_file(path, DecodingOptions.greedy(language="en"))
            assert [s.tokens for s in transcript.segments] == expected
            if not cutting.num_cut:
                break
        assert cut > 20


async def test_retries_end_after_the_time_limit(tmp_path):
    path = wav(tmp_path / "audio.wav", recording(95.0))
    async with (
        target_server() as target,
        draft_server(target.address) as draft,
        cut_clients(draft.address, [2] + [0] * 1000) as (network, cutting),
        TranscriptionClient(network.address, resume_timeout_s=0.2) as client,
    ):
        with pytest.raises(TargetUnavailable, match="cut"):
            await client.transcribe_file(path)
        assert cutting.num_cut > 1
        await all_free(target, draft)


def with_tokens(state: bytes, *tokens: int) -> bytes:
    message = resume_point_pb2.ResumePointState.FromString(state)
    message.recording.resume.committed.extend(tokens)
    message.recording.resume.log_probs.extend([0.0] * len(tokens))
    return message.SerializeToString()


async def test_invalid_resume_points_are_refused():
    async with target_server() as target, draft_server(target.address) as draft:
        state = (await resume_point_of(draft)).state
        bad = [
            b"\xff",
            resume_point_pb2.ResumePointState(
                protocol_version=PROTOCOL_VERSION, weights_digest="digest of scripted"
            ).SerializeToString(),
            with_tokens(state, 99_999),
            with_tokens(state, *[0] * 1000),
            with_tokens(state, END),
        ]
        for given in bad:
            requests = [opening(resume_point=pb.ResumePoint(state=given)), *audio_requests(recording(40.0))]
            call = with_true_status(draft.stub.StreamingRecognize(iter(requests)))
            assert type(await error_of(call)) is InvalidRequest
        wrong_rate = opening(resume_point=pb.ResumePoint(state=state), sample_rate_hertz=44_100)
        error = await refusal(draft, wrong_rate)
        assert "16000 Hz" in str(error)
        await all_free(target, draft)
        await eventually(lambda: draft.server.calls.num_open == 0)
        requests = [opening(), *audio_requests(recording(5.0))]
        assert [r async for r in draft.stub.StreamingRecognize(iter(requests))]


async def test_a_target_in_the_draft_servers_process_continues_a_recording(tmp_path, reports_every_commit):
    """This is `specwhisper-draft-server --target-model`."""
    path = wav(tmp_path / "audio.wav", recording(33.0))
    model = save_checkpoint(Shape(d_model=32, max_target_positions=60), tmp_path / "target")
    nowhere, options = "127.0.0.1:1", DecodingOptions.greedy(language="de")
    async with (
        draft_server(nowhere, drafts=False, mode=Mode.TARGET_ONLY, target_model=str(model)) as draft,
        TranscriptionClient(draft.address) as client,
        cut_clients(draft.address, [3, 5, 2]) as (network, cutting),
        TranscriptionClient(network.address) as client_that_is_cut,
    ):
        resumed = await client_that_is_cut.transcribe_file(path, options)
        expected = await client.transcribe_file(path, options)
    assert cutting.num_cut == 3
    assert written(resumed.segments) == written(expected.segments)
