"""The sessions of a draft server at one target share a call, and have their texts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from specwhisper.errors import ServerFull, SlowReader, TargetUnavailable
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk, Candidates, Commit, Mode
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_draft_server.link import candidate_channel, grpc_target_stream
from specwhisper_draft_server.link.candidate_channel import CandidateChannel
from specwhisper_draft_server.link.grpc_target_stream import GrpcTargetStream
from specwhisper_draft_server.link.link import TargetLink
from specwhisper_target_server import candidate_call
from tests.rpc.network import cut_network
from tests.rpc.services import (
    Draft,
    all_free,
    check_text,
    draft_server,
    error_of,
    eventually,
    recording,
    stream,
    target_alone,
    target_server,
)

LENGTHS_S = (8.0, 33.0, 65.0)


@pytest.fixture
def calls(monkeypatch) -> list[CandidateChannel]:
    """The draft server's calls."""
    noted, open_call = [], CandidateChannel.__init__

    def noting(self, *args):
        noted.append(self)
        open_call(self, *args)

    monkeypatch.setattr(CandidateChannel, "__init__", noting)
    return noted


async def check_texts(draft: Draft, mode: str) -> None:
    await asyncio.gather(*(check_text(draft, length_s, mode=mode) for length_s in LENGTHS_S * 2))


@pytest.mark.parametrize("mode", ["MODE_TARGET_ONLY", "MODE_FULL"])
async def test_sessions_share_a_call_that_ends_with_the_last_of_them(target, draft, calls, mode):
    await check_texts(draft, mode)
    assert len(calls) == 1
    await all_free(target)
    await eventually(lambda: target.server.calls.num_open == 0)
    await stream(draft, recording(8.0))
    assert len(calls) == 2


@pytest.mark.parametrize(("num_responses", "stalls"), [(0, False), (8, False), (4, True)])
async def test_sessions_continue_after_the_loss_or_silence_of_their_call(
    target, calls, fast_retries, num_responses, stalls, monkeypatch
):
    """The sessions' own calls and the connection stay alive."""
    monkeypatch.setattr(candidate_channel, "SILENCE_S", 1.0)
    monkeypatch.setattr(candidate_call, "HEARTBEAT_S", 0.2)
    async with (
        cut_network(target.address, [], [num_responses], stalls=stalls) as (network, cutting),
        draft_server(network.address) as draft,
        asyncio.timeout(30),
    ):
        await check_texts(draft, "MODE_FULL")
        assert cutting.num_cut == 1
    assert len(calls) > 1


async def test_a_target_that_refuses_the_shared_call_refuses_the_session(target, draft, monkeypatch):
    monkeypatch.setattr(target.service._call_limiter, "max_sessions", 0)
    error = await error_of(stream(draft, recording(8.0)))
    assert type(error) is ServerFull and "holds its 0 `Share` calls" in str(error)


@asynccontextmanager
async def opened() -> AsyncIterator[GrpcTargetStream]:
    """Open a session at a target, without a draft."""
    async with target_server() as target:
        link = TargetLink(target.address)
        described, options = await link.describe(), DecodingOptions.greedy(language="en")
        async with link.open("by hand", described, Mode.FULL, options, draft_model="") as session:
            yield session
        await link.close()


async def test_heartbeats_keep_a_call_that_has_nothing_to_say(monkeypatch):
    received, next_of_share = [], candidate_call.next_of_share

    async def noting(requests):
        received.append(await next_of_share(requests))
        return received[-1]

    monkeypatch.setattr(candidate_call, "next_of_share", noting)
    monkeypatch.setattr(candidate_channel, "HEARTBEAT_S", 0.01)
    async with opened():
        await eventually(lambda: len(received) > 2)
    assert all(request.HasField("heartbeat") for request in received[:2])


async def test_many_blocks_that_wait_are_sent_in_messages_that_fit():
    async with opened() as session:
        for _ in range(3 * candidate_channel.MAX_BLOCKS):
            session.send(Candidates(0, 0, 0, tuple(range(64)), 1))
        await session.send_audio(AudioChunk(0, recording(8.0), is_last=True))
        tokens = [event.tokens async for event in session.events() if isinstance(event, Commit)]
        assert sum(tokens, ()) == sum(target_alone(8.0).window_tokens, ())
        assert not session._channel.is_over


async def test_a_session_whose_responses_are_not_read_ends(monkeypatch):
    monkeypatch.setattr(grpc_target_stream, "MAX_UNREAD", 3)
    async with opened() as session:
        for _ in range(9):
            session.receive(pb.SharedEvent(number=1, commit=pb.Commit()))
        with pytest.raises(SlowReader):
            assert [event async for event in session.events()] == []


async def test_the_end_of_the_call_does_not_matter_to_a_session_that_is_finished():
    async with opened() as session:
        session.receive(pb.SharedEvent(number=1, is_finished=True))
        session.receive(TargetUnavailable("The call has ended."))
        session._put(None)  # the end of its own call
        assert [event async for event in session.events()] == []
