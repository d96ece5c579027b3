"""Limits of sessions: number, duration, audio ahead."""

import asyncio
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from experiments.common.models.scripted import ScriptedModel
from specwhisper.errors import ServerFull, SessionExpired, SlowReader
from specwhisper.rpc.channels import with_true_status
from specwhisper.rpc.tokens import Tokens
from specwhisper.types import AudioChunk, Limits
from specwhisper.wire import codec
from specwhisper.wire.status import PUSHBACK_KEY, error_from_rpc
from specwhisper.wire.v1 import transcription_pb2_grpc, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.rpc.gated import Gated
from tests.rpc.hostile import Session, Shared, audio, heartbeat, hello, session, whole
from tests.rpc.scrapes import collected, value
from tests.rpc.services import (
    MAX_SESSIONS,
    PROMPTLY_S,
    RATE,
    SMALL_BUFFERS,
    all_free,
    audio_requests,
    callers,
    check_error,
    check_text,
    draft_server,
    error_of,
    eventually,
    finals,
    recording,
    refusal,
    rest_of,
    running_pair,
    slowed,
    stream,
    streaming_config,
    target_alone,
    target_server,
    whole_request,
)

ANNAS, ANNAS_NEW, BENS = "anna-has-this-token", "anna-has-that-token", "ben-has-another-one"
TOKENS = Tokens({ANNAS: "anna", ANNAS_NEW: "anna", BENS: "ben"})
SECOND = recording(1.0)
TIMEOUT_S = 25.0  # on a busy machine
GRPC_BUFFERS = 16 * 1024 * 1024  # it reads ahead as far as the connection is fast


# Quotas


@pytest.mark.parametrize("limit", [{"max_sessions": 2}, {"max_sessions_per_token": 1}])
async def test_a_quota_of_each_address_at_a_draft_server(target, tmp_path, limit):
    path = tmp_path / "socket"
    async with (
        draft_server(target.address, local_socket=path, **limit) as draft,
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
    ):
        other = replace(draft, stub=transcription_pb2_grpc.TranscriptionStub(channel))
        assert finals(await stream(draft, SECOND)) == finals(await stream(other, SECOND))
        call = draft.stub.StreamingRecognize()
        await call.write(streaming_config())
        await eventually(lambda: draft.service.num_sessions == 1)
        error = await refusal(draft, streaming_config())
        check_error(error, ServerFull, "1 sessions of '127.0.0.1'")
        assert error.retry_after_s == 1.0
        assert finals(await stream(other, SECOND))
        call.cancel()
        await all_free(target, draft)


async def test_tokens_of_one_name_share_a_quota_at_a_target():
    async with (
        target_server(tokens=TOKENS, max_sessions_per_token=1) as target,
        callers(target, ANNAS, ANNAS_NEW, BENS) as (anna, also_anna, ben),
    ):
        async with session(anna, hello()) as first:
            await first.read()
            async with session(also_anna) as second:
                ended = await second.error([hello()])
            assert type(error_from_rpc(ended, "it")) is ServerFull
            assert dict(ended.trailing_metadata())[PUSHBACK_KEY] == "1000"
            error = await error_of(anna.stub.Locate(pb.LocateRequest()))
            assert type(error) is ServerFull and "1 sessions of 'anna'" in str(error)
            async with session(ben, hello(), *whole(SECOND)) as other:
                assert await other.finish() == target_alone(1.0).window_tokens
        await all_free(target)


async def test_a_flood_is_refused_at_once_and_open_sessions_continue():
    """Ten times as many sessions as slots, while a forward pass does not end."""
    model = Gated()
    async with target_server(model) as target:
        others = [Session(target) for _ in range(MAX_SESSIONS)]
        for other in others:
            await other.send(hello())
            await other.read()
        sending = [
            asyncio.create_task(other.send(*whole(recording(33.0, seed))))
            for seed, other in enumerate(others)
        ]
        await eventually(model.is_there.is_set)
        shared = Shared(target.stub)
        await shared.open()
        flood = [Session(target, shared, number) for number in range(10 * MAX_SESSIONS)]
        ended = await asyncio.gather(*(one.error([hello()]) for one in flood))
        model.gate.set()
        for error in ended:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert dict(error.trailing_metadata())[PUSHBACK_KEY] == "1000"
        await asyncio.gather(*sending)
        texts = await asyncio.gather(*(other.finish() for other in others))
        assert texts == [target_alone(33.0, seed).window_tokens for seed in range(MAX_SESSIONS)]
        shared.call.cancel()
        await all_free(target)


# Time


@pytest.mark.parametrize("requests", [[], [hello()], [hello(), audio(SECOND)]])
async def test_a_draft_server_that_falls_silent(requests):
    async with target_server(idle_timeout_s=0.3) as target, session(target, *requests) as silent:
        error = error_from_rpc(await silent.error(), "the target")
        check_error(error, SessionExpired, "has sent nothing for 0.3 s")
        await all_free(target)


async def test_a_session_over_the_session_timeout_continues_in_another():
    async with (
        # Half of the time that its forward passes take.
        target_server(slowed(ScriptedModel(MAX_SESSIONS), 0.03), session_timeout_s=1.0) as target,
        draft_server(target.address) as draft,
    ):
        responses = await check_text(draft, 65.0, mode="MODE_TARGET_ONLY")
        figures = collected(draft.service.metrics.collected)
        assert value(figures, "specwhisper_draft_session_resumes_total", reason=SessionExpired.__name__) >= 1
        await all_free(target, draft)
    assert responses[-1].statistics.num_windows == len(target_alone(65.0).window_tokens)


@pytest.mark.parametrize("sends", [False, True])
async def test_a_call_over_the_session_timeout_ends(sends):
    async with running_pair(session_timeout_s=0.3) as (target, draft):
        call = with_true_status(draft.stub.StreamingRecognize())
        await call.write(streaming_config())
        sending = asyncio.create_task(send_audio(call, 10.0 if sends else 0.0))
        check_error(await error_of(rest_of(call)), SessionExpired, "lasted 0.3 s")
        await eventually(lambda: draft.server.calls.num_open == 0, within_s=PROMPTLY_S)
        await all_free(target, draft)
        figures = collected(draft.service.metrics.collected)
        for outcome, number in (("failed", 1), ("cancelled", 0)):  # although its handler was cancelled
            name = "specwhisper_draft_sessions_total"
            assert value(figures, name, mode="full", outcome=outcome) == number
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_recording_over_the_session_timeout_leaves_no_session():
    model = Gated()
    async with target_server(model) as target, draft_server(target.address, session_timeout_s=0.3) as draft:
        call = draft.stub.Recognize(whole_request(SECOND, mode="MODE_TARGET_ONLY"))
        assert type(await error_of(call)) is SessionExpired
        await eventually(lambda: draft.server.calls.num_open == 0, within_s=PROMPTLY_S)
        model.gate.set()
        await all_free(target, draft)


async def send_audio(call, length_s: float) -> None:
    for request in audio_requests(recording(length_s), 3_200):
        await call.write(request)


# Unread answers


async def test_a_draft_server_that_reads_nothing_loses_its_slot_and_learns_it_later():
    """A session beside it stays open by its heartbeats."""
    async with (
        target_server(idle_timeout_s=1.0) as target,
        grpc.aio.insecure_channel(target.address, SMALL_BUFFERS) as channel,
    ):
        not_reading = Session(replace(target, stub=verification_pb2_grpc.VerificationStub(channel)))
        neighbour = Session(target)
        await neighbour.send(hello(), audio(SECOND))
        await not_reading.send(hello())
        await eventually(lambda: target.server.calls.num_open == 4)

        async def ask() -> None:
            while True:
                await not_reading.send(heartbeat())

        async def stay() -> None:
            while target.server.calls.num_open > 2:
                await neighbour.send(heartbeat())
                await neighbour.read_until("heartbeat")

        asking, staying = asyncio.create_task(ask()), asyncio.create_task(stay())
        await eventually(lambda: target.num_free_slots == MAX_SESSIONS - 2, TIMEOUT_S)
        await eventually(lambda: target.num_free_slots == MAX_SESSIONS - 1, TIMEOUT_S)
        await eventually(lambda: target.server.calls.num_open == 2, TIMEOUT_S)
        error = error_from_rpc(await not_reading.error(), "the target")
        assert not_reading.responses  # responses that were in flight
        assert type(error) is SlowReader and "No response was read for 1 s" in str(error)
        asking.cancel()
        await asyncio.gather(asking, staying, return_exceptions=True)
        await neighbour.send(audio(b"", RATE, is_last=True))
        assert await neighbour.finish() == target_alone(1.0).window_tokens
        await all_free(target)


# Audio


async def test_audio_ahead_of_the_decoder_is_bounded():
    """A client may send an hour in a second; the servers hold a bounded part of it."""
    model = Gated()
    async with target_server(model) as target, draft_server(target.address) as draft:
        call = with_true_status(draft.stub.StreamingRecognize())
        num_sent = 0

        async def send_an_hour() -> None:
            nonlocal num_sent
            await call.write(streaming_config(mode="MODE_TARGET_ONLY"))
            for request in audio_requests(SECOND) * 3600:
                await call.write(request)
                num_sent += len(request.audio_content)

        sending = asyncio.create_task(send_an_hour())
        await eventually(model.is_there.is_set)
        before = -1
        while num_sent != before:  # until writes block
            before = num_sent
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(sending), 0.3)
        assert num_sent < 2 * Limits().max_ahead_samples + GRPC_BUFFERS
        call.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        model.gate.set()
        await all_free(target, draft)


async def test_audio_that_grows_when_decoded_waits_for_the_engine(monkeypatch):
    """Messages are posted to the engine without waiting, unless many or large."""
    async with target_server() as target, session(target, hello()) as talking:
        await talking.read()
        thread, waited_for = target.service._thread, []
        call = thread.call

        async def recorded(action):
            waited_for.append(action)
            return await call(action)

        monkeypatch.setattr(thread, "call", recorded)
        pcm = bytes(2 * RATE * 60)  # silence in four messages of a few bytes: 1.9 MB
        size = len(pcm) // 4
        for at in range(0, len(pcm), size):
            chunk = AudioChunk(at // 2, pcm[at : at + size], is_last=at + size == len(pcm))
            message = codec.audio_chunk_to_proto(chunk, compress=True)
            assert len(message.data) < 1_000
            await talking.send(pb.VerifyRequest(audio=message))
        await talking.finish()
        assert len(waited_for) == 1
