"""Sessions of one draft server share a stream for candidates, windows and commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from specwhisper.errors import (
    IdleClient,
    InvalidCandidates,
    InvalidRequest,
    ServerFull,
    SessionExpired,
    TargetUnavailable,
)
from specwhisper.rpc.channels import Credentials, open_channel, with_true_status
from specwhisper.rpc.tokens import Tokens
from specwhisper.types import Limits
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_target_server import sharing
from tests.rpc.hostile import Session, Shared, candidates, hello, session, whole
from tests.rpc.services import Target, all_free, eventually, recording, target_alone, target_server

LONG, SHORT = recording(65.0), recording(8.0)
EXPECTED = target_alone(65.0)


@asynccontextmanager
async def sharing_stream(target: Target) -> AsyncIterator[Shared]:
    opened = Shared(target.stub)
    try:
        await opened.read()
        yield opened
    finally:
        opened.call.cancel()


async def session_error(session: Session, *requests: pb.VerifyRequest) -> Exception:
    return error_from_rpc(await session.error(requests), "here")


async def test_events_of_a_session_come_in_the_shared_stream_and_its_end_in_its_own():
    async with target_server() as target, sharing_stream(target) as shared:
        joining = hello(shared_key=shared.key, shared_number=7)
        async with (
            session(target, joining, *whole(LONG)) as joined,
            session(target, hello(), *whole(LONG)) as own,
        ):
            await shared.read_until(7, "is_finished")
            assert await joined.finish() == (), "they came in the shared stream"
            assert shared.tokens(7) == await own.finish() == EXPECTED.window_tokens
        assert joined.responses[0].welcome.is_shared
        assert not own.responses[0].welcome.is_shared
        await all_free(target)


async def test_candidates_are_taken_from_the_shared_stream():
    expected = target_alone(8.0).window_tokens[0]
    async with target_server() as target, sharing_stream(target) as shared:
        joining = hello(shared_key=shared.key, shared_number=1, mode="MODE_SYNC")
        async with session(target, joining, *whole(SHORT)) as joined:
            await shared.read_until(1, "window_opened")
            await shared.send(1, candidates(expected[:5], block_number=1))
            await shared.read_until(1, "commit")
            commit = shared.events[1][-1].commit
            assert (commit.num_accepted, tuple(commit.tokens)) == (5, expected[:6])
            assert joined.responses == []


@pytest.mark.parametrize("ended", [False, True])
async def test_a_session_with_an_unknown_key_has_its_own_stream(ended):
    """Another server may have the key: a proxy spreads calls over many."""
    async with target_server() as target:
        key = "of another server"
        if ended:
            async with sharing_stream(target) as shared:
                key = shared.key
            await eventually(lambda: target.service._shared.find(key, "anonymous") is None)
        async with session(target, hello(shared_key=key, shared_number=1), *whole(SHORT)) as own:
            assert await own.finish() == target_alone(8.0).window_tokens
        assert not own.responses[0].welcome.is_shared


async def test_a_stream_is_shared_by_sessions_of_its_own_caller_only():
    tokens = Tokens({"a" * 32: "first", "b" * 32: "second"})
    async with target_server(tokens=tokens) as target:
        async with (
            open_channel(target.address, Credentials(token="a" * 32)) as first,
            open_channel(target.address, Credentials(token="b" * 32)) as second,
        ):
            stubs = [verification_pb2_grpc.VerificationStub(channel) for channel in (first, second)]
            shared = Shared(stubs[0])
            await shared.read()
            welcomes = []
            for stub in stubs:
                call = with_true_status(stub.Verify())
                await call.write(hello(shared_key=shared.key, shared_number=1))
                welcomes.append((await call.read()).welcome.is_shared)
                call.cancel()
            shared.call.cancel()
    assert welcomes == [True, False]


async def test_two_sessions_of_a_stream_need_two_numbers():
    async with target_server() as target, sharing_stream(target) as shared:
        joining = hello(shared_key=shared.key, shared_number=1)
        async with session(target, joining) as first, session(target, joining) as second:
            await first.read()
            assert type(await session_error(second)) is InvalidRequest
            await first.send(*whole(SHORT))
            await shared.read_until(1, "is_finished")
        assert shared.tokens(1) == target_alone(8.0).window_tokens


async def test_invalid_candidates_end_their_session_only():
    async with target_server() as target, sharing_stream(target) as shared:
        bad, good = (hello(shared_key=shared.key, shared_number=number) for number in (1, 2))
        async with session(target, bad) as first, session(target, good) as second:
            await asyncio.gather(first.read(), second.read())
            await shared.send(1, candidates([2**31]))
            assert type(await session_error(first)) is InvalidCandidates
            await shared.send(1, candidates([1]))  # it has ended: ignored
            await shared.send(99, candidates([1]))  # there was none
            await second.send(*whole(SHORT))
            await shared.read_until(2, "is_finished")
        assert shared.tokens(2) == target_alone(8.0).window_tokens
        await all_free(target)


async def test_the_end_of_the_stream_ends_its_sessions():
    async with target_server() as target:
        async with sharing_stream(target) as shared:
            async with session(target, hello(shared_key=shared.key, shared_number=1)) as joined:
                await joined.read()
                shared.call.cancel()
                assert type(await session_error(joined)) is TargetUnavailable
        await all_free(target)


async def test_too_many_blocks_end_the_stream_and_its_sessions(monkeypatch):
    monkeypatch.setattr(sharing, "MAX_BLOCKS", 2)
    async with target_server() as target, sharing_stream(target) as shared:
        async with session(target, hello(shared_key=shared.key, shared_number=1)) as joined:
            await joined.read()
            await shared.send(1, *[candidates([1])] * 3)
            assert type(await shared.error()) is InvalidRequest
            assert type(await session_error(joined)) is TargetUnavailable, "it may continue elsewhere"


async def test_there_are_as_many_shared_streams_as_sessions():
    async with target_server(limits=Limits(max_sessions=1)) as target, sharing_stream(target):
        assert type(await Shared(target.stub).error()) is ServerFull


async def test_a_caller_has_as_many_shared_streams_as_sessions():
    tokens = Tokens({"a" * 32: "first", "b" * 32: "second"})
    async with target_server(tokens=tokens, max_sessions_per_token=1) as target:
        async with (
            open_channel(target.address, Credentials(token="a" * 32)) as first,
            open_channel(target.address, Credentials(token="b" * 32)) as second,
        ):
            own, other = (verification_pb2_grpc.VerificationStub(channel) for channel in (first, second))
            streams = [Shared(own)]
            await streams[0].read()
            assert type(await Shared(own).error()) is ServerFull
            streams.append(Shared(other))
            await streams[1].read()
            for stream in streams:
                stream.call.cancel()


async def test_a_stream_without_sessions_ends_after_a_while():
    async with target_server(idle_timeout_s=0.2) as target:
        shared = Shared(target.stub)
        with pytest.raises(EOFError):
            while True:
                await shared.read()
        assert shared.key


async def test_a_stream_whose_heartbeats_stop_ends(monkeypatch):
    monkeypatch.setattr(sharing, "SILENCE_S", 0.3)
    async with target_server() as target, sharing_stream(target) as shared:
        joining = hello(shared_key=shared.key, shared_number=1)
        async with session(target, joining) as joined:
            await joined.read()
            await shared.call.write(pb.ShareRequest(heartbeat=pb.Heartbeat(sent_ns=1)))
            assert type(await shared.error()) is IdleClient
            assert type(await session_error(joined)) is TargetUnavailable, "it may continue elsewhere"


async def test_a_stream_may_last_longer_than_its_sessions():
    async with target_server(session_timeout_s=0.5) as target, sharing_stream(target) as shared:
        for number in (1, 2):
            async with session(target, hello(shared_key=shared.key, shared_number=number)) as joined:
                assert (await joined.read()).welcome.is_shared
                assert type(await session_error(joined)) is SessionExpired


async def test_a_stream_whose_events_are_not_read_is_evicted(monkeypatch):
    monkeypatch.setattr(sharing, "MAX_UNREAD_EVENTS", 0)  # with more, the transport may take them in time
    async with target_server() as target, sharing_stream(target) as shared:
        async with session(target, hello(shared_key=shared.key, shared_number=1)) as joined:
            assert type(await session_error(joined, *whole(LONG))).__name__ == "SlowReader"
        assert type(await shared.error()).__name__ == "SlowReader"
        await all_free(target)


async def test_a_stopping_server_waits_for_sessions_not_for_streams():
    async with target_server() as target, sharing_stream(target) as shared:
        async with session(target, hello(shared_key=shared.key, shared_number=1), *whole(SHORT)) as joined:
            await joined.read()
            stopping = asyncio.create_task(target.server.stop(60.0, target.service.announce_drain))
            await shared.read_until(1, "is_finished")
            assert await joined.finish() == ()
            assert [r.WhichOneof("message") for r in joined.responses].count("going_away") == 1
        with pytest.raises(EOFError):
            await shared.read()
        await stopping


async def test_a_caller_that_has_nothing_more_to_send_ends_the_stream_after_its_sessions():
    async with target_server() as target, sharing_stream(target) as shared:
        async with session(target, hello(shared_key=shared.key, shared_number=1)) as joined:
            await joined.read()
            await shared.call.done_writing()
            await joined.send(*whole(SHORT))
            await shared.read_until(1, "is_finished")
            assert await joined.finish() == ()
        with pytest.raises(EOFError):
            await shared.read()
        assert shared.tokens(1) == target_alone(8.0).window_tokens
