"""The sessions of a draft server at one target share a stream, and have their texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from specwhisper.errors import SlowReader, TargetUnavailable
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import Candidates
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_draft_server.link import sharing
from specwhisper_target_server import sharing as serving_side
from specwhisper_target_server.sharing import SharedStream
from tests.rpc.bad_network import bad_network
from tests.rpc.hostile import hello, session, whole
from tests.rpc.network import cut_network
from tests.rpc.services import (
    MAX_SESSIONS,
    MODES,
    Draft,
    Target,
    all_free,
    audio_requests,
    draft_server,
    eventually,
    expected_finals,
    finals,
    recording,
    stream,
    streaming_config,
    target_alone,
    target_server,
)

LENGTHS_S = (8.0, 33.0, 65.0)


@dataclass
class Sharing:
    """What is shared: the draft server's streams, and the numbers of the sessions that have joined."""

    streams: list[sharing.SharedStream] = field(default_factory=list)
    joined: list[int] = field(default_factory=list)


@pytest.fixture
def shared(monkeypatch) -> Sharing:
    """Note what is shared."""
    noted = Sharing()
    open_stream, join = sharing.SharedStream.__init__, SharedStream.joined

    def noting_stream(self, *args):
        noted.streams.append(self)
        open_stream(self, *args)

    def noting_session(self, number, *args):
        noted.joined.append(number)
        return join(self, number, *args)

    monkeypatch.setattr(sharing.SharedStream, "__init__", noting_stream)
    monkeypatch.setattr(SharedStream, "joined", noting_session)
    return noted


@asynccontextmanager
async def first_session(draft: Draft, target: Target) -> AsyncIterator[None]:
    """Keep a session open, so that the next ones share a stream, if the target offers one."""
    call = with_true_status(draft.stub.StreamingRecognize())
    try:
        await call.write(streaming_config())
        await call.write(audio_requests(recording(8.0))[0])
        await eventually(lambda: target.num_free_slots == MAX_SESSIONS - 1)
        yield
    finally:
        call.cancel()


async def check_texts(draft: Draft, mode: str) -> None:
    lengths_s = LENGTHS_S * 2
    texts = await asyncio.gather(*(stream(draft, recording(s), mode=mode) for s in lengths_s))
    for length_s, responses in zip(lengths_s, texts, strict=True):
        assert finals(responses) == expected_finals(target_alone(length_s))


@pytest.mark.parametrize("mode", MODES)
async def test_sessions_that_share_a_stream_have_the_targets_text(shared, mode):
    async with target_server() as target, draft_server(target.address) as draft:
        async with first_session(draft, target):
            await check_texts(draft, mode)
        await all_free(target)
    assert sorted(shared.joined) == list(range(1, 2 * len(LENGTHS_S) + 1))


def lossy():
    """Return a function that loses, repeats and damages blocks in turns."""
    num_blocks = 0

    def edit(block: Candidates) -> tuple[Candidates, ...]:
        nonlocal num_blocks
        num_blocks += 1
        return [(block,), (), (block, block)][num_blocks % 3]

    return edit


@pytest.mark.parametrize("hold_commits", [0, 2])
async def test_candidates_may_be_lost_repeated_and_late(shared, hold_commits):
    async with (
        target_server() as target,
        bad_network(target.address, lossy, hold_commits=hold_commits) as network,
        draft_server(network.address) as draft,
        first_session(draft, target),
    ):
        await check_texts(draft, "MODE_FULL")
    assert len(shared.joined) == 2 * len(LENGTHS_S)


@pytest.mark.parametrize("num_responses", [0, 1, 8])
async def test_sessions_continue_after_the_loss_of_their_stream(shared, fast_retries, num_responses):
    async with (
        target_server() as target,
        cut_network(target.address, [], [num_responses]) as (network, cutting),
        draft_server(network.address) as draft,
        first_session(draft, target),
    ):
        await check_texts(draft, "MODE_FULL")
        assert cutting.num_cut == 1


async def test_sessions_continue_after_the_silence_of_their_stream(shared, fast_retries, monkeypatch):
    """The sessions' own streams and the connection stay alive."""
    monkeypatch.setattr(sharing, "SILENCE_S", 1.0)
    monkeypatch.setattr(serving_side, "HEARTBEAT_S", 0.2)
    async with (
        target_server() as target,
        cut_network(target.address, [], [4], stalls=True) as (network, cutting),
        draft_server(network.address) as draft,
        first_session(draft, target),
        asyncio.timeout(30),
    ):
        await check_texts(draft, "MODE_FULL")
        assert cutting.num_cut == 1
    assert len(shared.streams) > 1


async def test_heartbeats_keep_a_shared_stream_that_has_nothing_to_say(monkeypatch):
    for side in (sharing, serving_side):
        monkeypatch.setattr(side, "SILENCE_S", 0.5)
        monkeypatch.setattr(side, "HEARTBEAT_S", 0.1)
    async with target_server() as target:
        stream = sharing.SharedStream(target.address, target.stub)
        await stream.wait_begun()
        await asyncio.sleep(1.5)
        assert not stream.is_over
        stream.close()


async def test_sessions_that_open_at_once_share_a_stream_but_for_the_first(shared):
    async with target_server() as target, draft_server(target.address) as draft:
        await check_texts(draft, "MODE_FULL")
    assert len(shared.streams) == 1
    assert len(shared.joined) == 2 * len(LENGTHS_S) - 1


async def test_many_blocks_that_wait_are_sent_in_messages_that_fit():
    block = Candidates(0, 0, 0, tuple(range(64)), 1)
    async with target_server() as target:
        stream = sharing.SharedStream(target.address, target.stub)
        await stream.wait_begun()
        with stream.joined() as joined:
            for _ in range(3 * sharing.MAX_BLOCKS):
                joined.propose(block)
            joining = hello(shared_key=joined.key, shared_number=joined.number)
            async with session(target, joining, *whole(recording(8.0))) as own:
                responses = joined.read(own.call)
                kinds = {response.WhichOneof("message") async for response in responses}
        assert kinds == {"welcome", "window_opened", "commit"} and not stream.is_over
        stream.close()


async def test_a_session_whose_responses_are_not_read_ends(monkeypatch):
    monkeypatch.setattr(sharing, "MAX_UNREAD", 3)
    async with target_server() as target:
        stream = sharing.SharedStream(target.address, target.stub)
        with stream.joined() as joined:
            for _ in range(9):
                joined.receive(pb.SharedEvent(number=1, commit=pb.Commit()))
            for _ in range(3):
                await anext(joined)
            with pytest.raises(SlowReader):
                await anext(joined)
        stream.close()


async def test_the_end_of_a_shared_stream_does_not_matter_to_a_session_that_is_finished():
    async def own():
        yield pb.VerifyResponse(heartbeat=pb.Heartbeat(sent_ns=1))

    async with target_server() as target:
        stream = sharing.SharedStream(target.address, target.stub)
        with stream.joined() as joined:
            joined.receive(pb.SharedEvent(number=1, is_finished=True))
            joined.receive(TargetUnavailable("The stream has ended."))
            assert [each.WhichOneof("message") async for each in joined.read(own())] == ["heartbeat"]
        stream.close()
