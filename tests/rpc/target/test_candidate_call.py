"""Sessions of one draft server have one call for candidates, windows and commits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from specwhisper.errors import (
    IdleClient,
    InvalidCandidates,
    InvalidRequest,
    PairMismatch,
    ServerDraining,
    ServerFull,
    SessionExpired,
    SlowReader,
    TargetUnavailable,
)
from specwhisper.rpc.tokens import Tokens
from specwhisper.types import Limits
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_target_server import candidate_call
from tests.rpc.hostile import Session, Shared, candidates, hello, session, whole
from tests.rpc.services import Target, all_free, callers, eventually, recording, target_alone, target_server

LONG, SHORT = recording(65.0), recording(8.0)
FIRST, SECOND = "a" * 32, "b" * 32
TOKENS = Tokens({FIRST: "first", SECOND: "second"})


@asynccontextmanager
async def share(target: Target) -> AsyncIterator[Shared]:
    opened = Shared(target.stub)
    try:
        await opened.open()
        yield opened
    finally:
        opened.call.cancel()


@pytest.fixture
async def shared(target) -> AsyncIterator[Shared]:
    async with share(target) as opened:
        yield opened


async def session_error(session: Session, *requests: pb.VerifyRequest) -> Exception:
    return error_from_rpc(await session.error(requests), "here")


async def test_events_of_a_session_come_in_the_shared_call_and_its_end_in_its_own(target, shared):
    async with session(target, hello(), *whole(LONG), shared=shared, number=7) as joined:
        await shared.read_until(7, "is_finished")
        await joined.finish()
    assert {each.WhichOneof("message") for each in joined.responses} <= {"welcome", "heartbeat"}
    assert shared.tokens(7) == target_alone(65.0).window_tokens


@pytest.mark.parametrize("is_late", [True, False])
async def test_a_session_waits_for_its_shared_call_and_not_for_long(is_late, monkeypatch):
    """Something between may send the two calls to different targets."""
    monkeypatch.setattr(candidate_call, "JOIN_S", 30.0 if is_late else 0.2)
    async with target_server() as target:
        shared = Shared(target.stub)
        async with session(target, hello(), *whole(SHORT), shared=shared) as early:
            reading = asyncio.create_task(early.read())
            if is_late:
                await asyncio.sleep(0.1)
                assert not reading.done()
                await shared.open()
                assert (await reading).HasField("welcome")
            else:
                with pytest.raises(Exception, match="a proxy sends the calls of one connection") as refused:
                    await reading
                assert type(error_from_rpc(refused.value, "here")) is PairMismatch
        shared.call.cancel()
        await all_free(target)


async def test_a_call_is_shared_by_sessions_of_its_own_caller_only(monkeypatch):
    monkeypatch.setattr(candidate_call, "JOIN_S", 0.2)
    async with target_server(tokens=TOKENS) as target, callers(target, FIRST, SECOND) as (first, second):
        shared = Shared(first.stub)
        await shared.open()
        await shared.read()  # the target has it: a session of another call does not wait for it
        for caller, joins in ((first, True), (second, False)):
            call = caller.stub.Verify(iter([hello(share_key=shared.key, share_number=1)]))
            try:
                assert (await call.read()).HasField("welcome") and joins
            except Exception as error:
                assert type(error_from_rpc(error, "here")) is PairMismatch and not joins
            call.cancel()
        shared.call.cancel()


async def test_a_key_is_long_random_and_named_in_the_hello(target, shared):
    for key, words in ((" " * 15, "16 to 64 characters"), (shared.key, "open `Share` call")):
        other = Shared(target.stub, key)
        await other.open()
        error = await other.error()
        assert type(error) is InvalidRequest and words in str(error)
    call = target.stub.Verify(iter([hello()]))
    with pytest.raises(Exception, match="has no share_key"):
        await call.read()


async def test_a_mistake_of_a_session_ends_no_other_one_of_its_call(target, shared):
    async with (
        session(target, hello(), shared=shared, number=1) as bad,
        session(target, hello(), shared=shared, number=2) as good,
        session(target, shared=shared, number=2) as late,
    ):
        await asyncio.gather(bad.read(), good.read())
        assert type(await session_error(late, hello())) is InvalidRequest, "the number is taken"
        await shared.send(1, candidates([2**31]))
        assert type(await session_error(bad)) is InvalidCandidates
        await shared.send(1, candidates([1]))  # it has ended: ignored
        await shared.send(99, candidates([1]))  # there was none
        await good.send(*whole(SHORT))
        await shared.read_until(2, "is_finished")
    assert shared.tokens(2) == target_alone(8.0).window_tokens


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [([candidates([1])] * 3, InvalidRequest), ([], IdleClient), (None, None)],
    ids=["too many blocks", "heartbeats that stop", "its caller"],
)
async def test_what_ends_the_call_ends_its_sessions(blocks, kind, monkeypatch):
    monkeypatch.setattr(candidate_call, "MAX_BLOCKS", 2)
    monkeypatch.setattr(candidate_call, "SILENCE_S", 0.3)
    async with target_server() as target, share(target) as shared:
        async with session(target, hello(), shared=shared) as joined:
            await joined.read()
            if blocks is None:
                shared.call.cancel()
            else:
                await shared.send(1, *blocks)
                assert type(await shared.error()) is kind
            assert type(await session_error(joined)) is TargetUnavailable, "it may continue elsewhere"
        await all_free(target)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"limits": Limits(max_sessions=1)}, "holds its 2 `Share` calls"),
        ({"max_sessions_per_token": 1}, "2 `Share` calls"),
    ],
)
async def test_there_are_twice_as_many_shared_calls_as_sessions(limit, words):
    async with target_server(tokens=TOKENS, **limit) as target, callers(target, FIRST) as (caller,):
        for _ in range(2):
            held = Shared(caller.stub)
            await held.open()
            await held.read()
        refused = Shared(caller.stub)
        await refused.open()
        error = await refused.error()
        assert type(error) is ServerFull and words in str(error)


async def test_a_call_without_sessions_ends_after_a_while():
    async with target_server(idle_timeout_s=0.2) as target, share(target) as shared:
        await shared.ended()


async def test_a_shared_call_may_last_longer_than_its_sessions():
    async with target_server(session_timeout_s=0.5) as target, share(target) as shared:
        for number in (1, 2):
            async with session(target, hello(), shared=shared, number=number) as joined:
                assert type(await session_error(joined)) is SessionExpired


async def test_a_call_whose_events_are_not_read_is_evicted(monkeypatch):
    # With more, the transport may take them in time.
    monkeypatch.setattr(candidate_call, "MAX_UNREAD_EVENTS", 0)
    async with target_server() as target, share(target) as shared:
        async with session(target, hello(), shared=shared) as joined:
            assert type(await session_error(joined, *whole(LONG))) is SlowReader
        assert type(await shared.error()) is SlowReader
        await all_free(target)


async def test_a_stopping_server_waits_for_sessions_not_for_shared_calls(target, shared):
    async with session(target, hello(), shared=shared) as joined:
        await joined.read()
        stopping = asyncio.create_task(target.server.stop(60.0, target.service.announce_drain))
        await eventually(lambda: target.server.calls.is_draining)
        async with session(target, shared=shared, number=2) as late:
            assert type(await session_error(late, hello())) is ServerDraining
        await joined.send(*whole(SHORT))
        await shared.read_until(1, "is_finished")
        await joined.finish()
        assert [each.WhichOneof("message") for each in joined.responses].count("going_away") == 1
    await shared.ended()
    await stopping


async def test_a_caller_that_has_nothing_more_to_send_ends_the_call_after_its_sessions(target, shared):
    async with session(target, hello(), shared=shared) as joined:
        await joined.read()
        await shared.call.done_writing()
        await joined.send(*whole(SHORT))
        await shared.read_until(1, "is_finished")
        await joined.finish()
    await shared.ended()
    assert shared.tokens(1) == target_alone(8.0).window_tokens
