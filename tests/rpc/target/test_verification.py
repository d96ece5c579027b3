"""The target's answers to single messages of a draft server."""

from functools import partial

import numpy as np
import pytest

from experiments.common.models.checkpoints import Shape, build_checkpoint
from experiments.common.models.scripted import VOCABULARY
from specwhisper.errors import ServerFull
from specwhisper.types import Limits
from specwhisper.wire import flac
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_target_server import service
from tests.rpc.hostile import candidates, heartbeat, hello, session, whole
from tests.rpc.services import (
    PROMPTLY_S,
    RATE,
    all_free,
    error_of,
    eventually,
    recording,
    target_alone,
    target_server,
)

LONG = recording(65.0)
EXPECTED = target_alone(65.0)


async def test_describe_leaves_a_known_vocabulary_out(target):
    first = await target.stub.Describe(pb.DescribeRequest())
    again = await target.stub.Describe(pb.DescribeRequest(vocabulary_digest=first.vocabulary_digest))
    assert first.vocabulary_digest == VOCABULARY.digest
    assert tuple(first.vocabulary.tokens) == VOCABULARY.tokens
    assert (first.model, first.weights_digest, first.num_mel_bins) == ("scripted", "digest of scripted", 80)
    assert not again.HasField("vocabulary")


async def test_locate_counts_free_slots_until_there_is_none():
    limits = Limits(max_sessions=1)
    async with target_server(limits=limits) as target:
        assert (await target.stub.Locate(pb.LocateRequest())).free_slots == 1
        async with session(target, hello()) as only:
            await only.read()
            assert type(await error_of(target.stub.Locate(pb.LocateRequest()))) is ServerFull
        await eventually(lambda: target.num_free_slots == 1, within_s=PROMPTLY_S)
        assert (await target.stub.Locate(pb.LocateRequest())).free_slots == 1


async def test_a_session_begins_with_a_welcome_and_ends_with_the_text(target):
    async with session(target, hello(), *whole(LONG)) as alone:
        assert await alone.finish() == EXPECTED.window_tokens
    welcome = alone.responses[0].welcome
    assert (welcome.weights_digest, welcome.limits.max_ahead_tokens) == ("digest of scripted", 256)
    opened = [each.window for each in alone.opened]
    assert [window.id for window in opened] == list(range(len(EXPECTED.window_tokens)))
    commits = alone.commits
    assert all(commit.num_self_decoded == 1 == len(commit.tokens) for commit in commits)
    assert [commit.is_final for commit in commits].count(True) == len(opened)
    assert all(len(commit.log_probs) == len(commit.tokens) for commit in commits)


async def test_heartbeats_come_back_and_come_unasked(monkeypatch):
    """On a slow link the draft's own heartbeats are queued after its audio."""
    async with target_server() as target, session(target, hello()) as quiet:
        for number in (1, 2**63):
            await quiet.send(heartbeat(number))
            assert (await quiet.read_until("heartbeat")).echo_ns == number
    monkeypatch.setattr(service, "HEARTBEAT_S", 0.01)
    async with target_server() as target, session(target, hello()) as quiet:
        for _ in range(3):
            received = await quiet.read_until("heartbeat")
            assert received.sent_ns and not received.echo_ns


async def test_every_block_is_answered_with_the_targets_position(target):
    """Send a lock-step target right, wrong, stale and misplaced blocks."""
    text = target_alone(1.0).window_tokens[0]
    assert len(text) > 8
    async with session(target, hello(mode="MODE_PIPELINED"), *whole(recording(1.0))) as waiting:
        await waiting.read_until("window_opened")
        blocks = [
            (candidates(text[:3]), (text[:4], 3)),
            (candidates([text[4], 0, 0], base=4, known_committed=4), (text[4 : 4 + 2], 1)),
            (candidates([0, 0], base=5, known_committed=4), ((), 0)),  # drafted before the correction
            (candidates(text[:3]), ((), 0)),  # known already
            (candidates([7], base=50, known_committed=6), ((), 0)),  # a gap
            (candidates(base=6, known_committed=6), (text[6:7], 0)),  # empty: self-decoding
        ]
        for received, (block, (tokens, num_accepted)) in enumerate(blocks, start=1):
            block.block_number = received
            await waiting.send(candidates([1], window_id=99), block)  # window 99 does not exist
            commit = await waiting.read_until("commit")
            assert (tuple(commit.tokens), commit.num_accepted) == (tokens, num_accepted)
            assert commit.answered_block == received
            assert commit.credit == commit.base + len(commit.tokens) + 256


async def test_flac_and_repeated_audio():
    pieces = whole(recording(3.0), piece_s=0.5)
    for piece in pieces:
        piece.audio.data = flac.encode(piece.audio.data)
        piece.audio.encoding = decoding_pb2.AUDIO_ENCODING_FLAC
    repeated = [piece for piece in pieces for _ in range(2)]
    async with target_server() as target, session(target, hello(), *repeated) as doubled:
        assert await doubled.finish() == target_alone(3.0).window_tokens


async def check_resumed(open_target, pcm, opening, window_id, num_committed) -> None:
    """Transcribe on one target, then resume on another without earlier audio."""
    async with open_target() as first, session(first, opening, *whole(pcm)) as original:
        windows = await original.finish()
    opened = next(each for each in original.opened if each.window.id == window_id)
    tokens = windows[window_id]
    num_committed = min(num_committed, len(tokens) - 1)
    resume = pb.Resume(
        window=opened.window, committed=tokens[:num_committed], log_probs=[0.0] * num_committed
    )
    # The window's first frames depend on 200 samples before it.
    start = max(0, opened.window.start_frame * 160 - 200)
    async with open_target() as second:
        requests = [opening, pb.VerifyRequest(resume=resume), *whole(pcm, start)]
        async with session(second, *requests) as resumed:
            assert await resumed.finish({window_id: tokens[:num_committed]}) == windows[window_id:]
            await all_free(second)
    assert resumed.opened[0].window == opened.window
    assert resumed.commits[0].base == num_committed


@pytest.mark.parametrize("mode", ["MODE_TARGET_ONLY", "MODE_FULL"])
@pytest.mark.parametrize(("window_id", "num_committed"), [(0, 0), (2, 5)])
async def test_a_session_resumed_on_another_target_writes_the_same_rest(window_id, num_committed, mode):
    await check_resumed(target_server, LONG, hello(mode=mode), window_id, num_committed)


async def test_a_resumed_session_keeps_the_log_mel_maximum():
    """Features of a whisper are clamped to the maximum of an earlier loud tone."""
    _, checkpoint = build_checkpoint(Shape(d_model=32, max_target_positions=24))
    quieter = np.frombuffer(LONG, "<i2") * 2e-4
    quieter[:RATE] = 32_000 * np.sin(np.arange(RATE) * 0.4)
    opening = hello(vocabulary_digest=checkpoint.vocabulary.digest, options={"timestamps": False})
    await check_resumed(
        partial(target_server, checkpoint=checkpoint), quieter.astype("<i2").tobytes(), opening, 2, 5
    )


async def test_a_target_over_its_latency_budget_takes_no_more_sessions():
    async with target_server(latency_budget_ms=1e-6) as target:
        async with session(target, hello(), *whole(LONG)[:-1]) as busy:
            await busy.read_until("commit")  # the first is always accepted
            async with session(target) as second:
                error = error_from_rpc(await second.error([hello()]), "the target")
    assert type(error) is ServerFull
    assert "With 2 sessions the target would answer in" in str(error)
