"""Sessions open on a matching target while others differ or are full."""

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from itertools import cycle

import pytest

from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel, scripted_checkpoint
from specwhisper.errors import PairMismatch
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.types import Limits
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import decoding_pb2, resume_point_pb2
from specwhisper_client.api import TranscriptionClient
from specwhisper_draft_server.transcriber import ANY, Requirements, TargetDescription
from tests.rpc.network import cut_clients
from tests.rpc.services import (
    HalfSent,
    all_free,
    audio_requests,
    check_text,
    draft_server,
    eventually,
    expected_finals,
    finals,
    recording,
    refusal,
    slowed,
    stream,
    streaming_config,
    target_alone,
    target_server,
    wav,
)

LENGTH_S = 65.0
SEEDS = {"old": 0, "new": 1}  # of the text of targets with these weights
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


def weighted(weights: str, max_sessions: int = 8, **settings):
    """Run a target with named weights."""
    model = slowed(ScriptedModel(max_sessions, seed=SEEDS[weights]))
    checkpoint = replace(scripted_checkpoint(), weights_digest=weights)
    return target_server(model, checkpoint, limits=Limits(max_sessions=max_sessions), **settings)


def strange(max_sessions: int = 8, **settings):
    """Run a target of another vocabulary."""
    model = ScriptedModel(max_sessions, vocabulary=MULTILINGUAL)
    return target_server(model, scripted_checkpoint("strange", vocabulary=MULTILINGUAL), **settings)


async def test_a_recording_continues_with_the_weights_it_began_with(unused_tcp_port_factory):
    ports = [unused_tcp_port_factory() for _ in range(2)]
    async with weighted("old") as victim:
        named = ",".join([victim.address, *(f"127.0.0.1:{port}" for port in ports)])
        async with draft_server(named) as draft:
            begun = HalfSent(draft)
            await begun.begin()
            async with weighted("new", 64, port=ports[0]) as other:
                async with weighted("old", port=ports[1]) as spare:
                    await victim.server.stop(drain_timeout_s=0)
                    responses = await begun.end()
                    await eventually(lambda: spare.num_free_slots == 8)
                assert other.num_free_slots == 64
    assert {r.model.target_weights_digest for r in responses if r.HasField("model")} == {"old"}


async def test_a_recording_whose_draft_server_is_lost_continues_with_its_weights(tmp_path, monkeypatch):
    """The next draft server looks for these weights only."""
    monkeypatch.setattr("specwhisper_draft_server.session.INTERVAL_S", 0.0)
    monkeypatch.setattr("specwhisper_draft_server.responses.INTERVAL_TOKENS", 1)
    path = wav(tmp_path / "audio.wav", recording(LENGTH_S))
    async with weighted("old", 2) as old, weighted("new", 64) as new:
        targets = f"{old.address},{new.address}"
        async with (
            draft_server(targets) as draft,
            cut_clients(draft.address, [3, 4, 5]) as (network, cutting),
        ):
            async with TranscriptionClient(network.address) as client:
                transcription = client.stream_file(path, interim_results=True)
                segments = [segment async for update in transcription for segment in update.segments]
            assert cutting.num_cut == 3
    seed = SEEDS[transcription.result.model.target_weights_digest]
    expected = target_alone(LENGTH_S, 0, seed)
    written = [(s.tokens, s.text) for s in expected.segments]
    assert [(s.tokens, s.text) for s in segments] == written


@pytest.mark.parametrize("mode", ["MODE_SYNC", "MODE_TARGET_ONLY"])
async def test_sessions_before_the_draft_is_placed_use_targets_of_one_vocabulary(mode, monkeypatch):
    """Target-only sessions use any target."""
    num_sessions, have_begun = 8, threading.Event()
    begun: list[str] = []

    def place(target: TargetDescription) -> ScriptedModel:
        have_begun.wait()
        return ScriptedModel(num_sessions, vocabulary=target.vocabulary)

    async with (
        target_server() as one,
        strange(num_sessions) as other,
        draft_server(f"{one.address},{other.address}", place=place) as draft,
    ):
        link, turns = draft.service._transcriber, cycle([one.address, other.address])
        known, describe = link.known, link.describe

        def known_unless_any(requirements: Requirements = ANY) -> TargetDescription | None:
            begun.append(requirements.vocabulary_digest)
            if len(begun) == num_sessions:
                have_begun.set()
            return known(requirements) if requirements.vocabulary_digest else None

        async def describe_in_turn(requirements: Requirements = ANY) -> TargetDescription:
            if requirements.vocabulary_digest:
                return await describe(requirements)
            return await link._describe(next(turns), ANY)

        monkeypatch.setattr(link, "known", known_unless_any)
        monkeypatch.setattr(link, "describe", describe_in_turn)
        texts = await asyncio.gather(*(stream(draft, recording(1.0), mode=mode) for _ in range(num_sessions)))
        found = Counter(responses[0].model.target for responses in texts)
        assert len(found) == (1 if mode == "MODE_SYNC" else 2)


async def test_weights_of_another_vocabulary_are_refused_at_once(target):
    """A client has their digest from another draft server, or from ``GetModel``."""
    async with strange() as other, draft_server(f"{target.address},{other.address}") as draft:
        await draft.service._transcriber._describe(target.address, ANY)
        await stream(draft, recording(0.5))
        await draft.service._transcriber._describe(other.address, ANY)
        first = streaming_config()
        state = resume_point_pb2.ResumePointState(weights_digest="digest of strange")
        first.streaming_config.resume_point.state = state.SerializeToString()
        error = await refusal(draft, first, *audio_requests(recording(1.0)))
        assert type(error) is PairMismatch
        await check_text(draft, 1.0)


@pytest.mark.parametrize(
    ("maxima", "is_taken"),
    [({}, True), ({80: 1.0, 128: 1.0}, True), ({80: 1.0}, False)],
)
async def test_a_full_target_refuses_no_session_that_one_of_other_mel_bins_can_take(maxima, is_taken):
    """It can if no log-mel maximum is needed, or that of its own bins is known."""
    model = ScriptedModel(8)
    model.num_mel_bins = 128
    checkpoint = scripted_checkpoint("wide", sizes=ModelSizes(*8 * [1], num_mel_bins=128))
    decoding = decoding_pb2.DecodingOptions(greedy=True, log_mel_max=maxima)
    async with target_server(limits=Limits(max_sessions=1)) as narrow, draft_server(narrow.address) as first:
        async with (
            target_server(model, checkpoint) as wide,
            draft_server(f"{narrow.address},{wide.address}") as draft,
        ):
            held = first.stub.StreamingRecognize()
            await held.write(streaming_config())
            await held.read()
            await draft.service._transcriber._describe(narrow.address, ANY)
            texts = await asyncio.gather(
                *(stream(draft, recording(1.0), decoding=decoding) for _ in range(4)), return_exceptions=True
            )
            held.cancel()
    if is_taken:
        assert [finals(responses) for responses in texts] == [expected_finals(target_alone(1.0))] * 4
        assert {responses[0].model.target for responses in texts} == {"wide"}
    else:
        assert {type(error_from_rpc(error, "the server")) for error in texts} == {PairMismatch}


async def test_without_a_target_of_its_vocabulary_a_session_ends_at_once(unused_tcp_port):
    async with draft_server(f"127.0.0.1:{unused_tcp_port}") as draft:
        async with target_server(port=unused_tcp_port):
            await stream(draft, recording(0.5))
        async with strange(port=unused_tcp_port):
            error = await refusal(draft, streaming_config(), *audio_requests(recording(1.0)))
    assert type(error) is PairMismatch
    assert "was set up for another vocabulary than that of target 'strange'" in str(error)


async def test_targets_may_have_different_block_limits(emptiest_first):
    """A session is prepared for one target, and opens on one with shorter blocks."""
    async with (
        target_server(limits=Limits(max_sessions=2)) as described,
        target_server(limits=Limits(max_sessions=8, max_block_tokens=2)) as emptiest,
        draft_server(f"{described.address},{emptiest.address}") as draft,
    ):
        await draft.service._transcriber._describe(described.address, ANY)
        for _ in range(3):
            await check_text(draft, LENGTH_S, mode="MODE_PIPELINED", gamma=5)
        await all_free(emptiest, draft)
