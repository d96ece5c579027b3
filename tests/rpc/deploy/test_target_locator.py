"""The locator of targets on a real socket, with a fake of Ray's handle."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
from ray.exceptions import ActorDiedError, RayTaskError

from specwhisper.errors import (
    InvalidRequest,
    LeaseRefused,
    PairMismatch,
    ServerFull,
    TargetUnavailable,
    Unauthenticated,
)
from specwhisper.rpc.channels import OPEN, Credentials, open_channel
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ClientTls
from specwhisper.rpc.tokens import Leases, Tokens
from specwhisper.wire.status import INTERNAL_ERROR
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_deploy import routing
from specwhisper_deploy.locators import (
    ANSWER_TIMEOUT_S,
    MAX_ATTEMPTS,
    ErrorReply,
    HandleReply,
    TargetLocatorService,
    describe_reply,
    locate_reply,
)
from specwhisper_draft_server.config import DraftConfig
from tests.certificates import save
from tests.rpc.hostile import hello, session
from tests.rpc.services import Target, as_target, error_of, eventually, target_server

TOKEN = "0123456789abcdef-Right"
TOKENS = Tokens({TOKEN: "anna"})
LONG_S = 60.0  # longer than any test, so a call without a timeout fails
METHODS = {"Locate": pb.LocateRequest(), "Describe": pb.DescribeRequest()}

Replica = Callable[..., Awaitable[HandleReply]]  # a target's method, called with bytes


class Response:
    """The response of a call over a handle of Serve: it can be awaited or cancelled."""

    def __init__(self, answer: Awaitable[HandleReply]) -> None:
        self._answer = answer
        self.is_cancelled = False

    def __await__(self) -> Any:
        return self._answer.__await__()

    def cancel(self) -> None:
        self.is_cancelled = True


class Handle:
    """Serve's handle to a deployment of targets; each call goes to the next replica, at last to the last."""

    def __init__(self, *replicas: Replica) -> None:
        self._replicas = list(replicas)
        self.asked: list[Response] = []
        self.locate = self.describe = self

    def remote(self, *args: Any) -> Response:
        replica = self._replicas.pop(0) if len(self._replicas) > 1 else self._replicas[0]
        self.asked.append(Response(replica(*args)))
        return self.asked[-1]


async def hangs(*_: Any) -> HandleReply:
    await asyncio.Event().wait()
    raise AssertionError


def raises(error: Exception) -> Replica:
    async def replica(*_: Any) -> HandleReply:
        raise error

    return replica


def refuses(kind: type[Exception]) -> Replica:
    async def replica(*_: Any) -> HandleReply:
        return ErrorReply(kind.__name__, "Not here.")

    return replica


async def answers(*_: Any) -> HandleReply:
    """Answer either method."""
    return pb.LocateResponse(address="a:1").SerializeToString()


def replica_of(target: Target) -> Replica:
    async def replica(request: bytes, caller: str | None = None) -> HandleReply:
        if caller is None:
            return await describe_reply(target.service, request)
        return await locate_reply(target.service, target.address, request, caller)

    return replica


@asynccontextmanager
async def locator(
    *replicas: Replica,
    answer_s: float = LONG_S,
    credentials: Credentials = OPEN,
    **options: Any,
) -> AsyncIterator[tuple[verification_pb2_grpc.VerificationStub, Handle]]:
    handle = Handle(*replicas)
    async with (
        as_target(TargetLocatorService(handle, answer_s), ServingOptions(**options)) as server,
        open_channel(server.address, credentials) as channel,
    ):
        yield verification_pb2_grpc.VerificationStub(channel), handle


async def test_the_locator_returns_a_target_with_a_lease_and_describes_it():
    async with target_server(leases=Leases()) as target, locator(replica_of(target)) as (stub, _):
        place = await stub.Locate(pb.LocateRequest())
        assert (place.address, place.free_slots) == (target.address, target.num_free_slots)
        async with session(target, hello(lease=place.lease)) as leased:
            await leased.read_until("welcome")
        assert await stub.Describe(pb.DescribeRequest()) == await target.stub.Describe(pb.DescribeRequest())
        error = await error_of(stub.Locate(pb.LocateRequest(weights_digest="of another one")))
        assert type(error) is PairMismatch, "a refusal of the target's is a value"


@pytest.mark.parametrize("kinds", [(PairMismatch, ServerFull), (ServerFull, PairMismatch)])
async def test_another_target_is_asked_if_one_refuses_and_a_full_match_is_reported(kinds, caplog):
    async with locator(refuses(kinds[0]), answers) as (stub, handle):
        assert (await stub.Locate(pb.LocateRequest())).address == "a:1"
    assert len(handle.asked) == 2
    assert "Traceback" not in caplog.text
    async with locator(*map(refuses, kinds)) as (stub, _):
        assert type(await error_of(stub.Locate(pb.LocateRequest()))) is ServerFull, "not the mismatch"


@pytest.mark.parametrize("method", METHODS)
async def test_a_call_to_a_hanging_target_times_out(method):
    async with locator(hangs, answer_s=0.05) as (stub, handle):
        error = await error_of(getattr(stub, method)(METHODS[method], timeout=LONG_S))
        assert type(error) is TargetUnavailable and "within 0.05 s" in str(error)
        assert [asked.is_cancelled for asked in handle.asked] == [True] * MAX_ATTEMPTS


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("other", [hangs, raises(ActorDiedError())], ids=["hangs", "has died"])
async def test_another_target_is_asked_if_one_does_not_answer(method, other):
    async with locator(other, answers, answer_s=0.6) as (stub, handle):
        await getattr(stub, method)(METHODS[method], timeout=LONG_S)
        assert [asked.is_cancelled for asked in handle.asked] == [other is hangs, False]


async def test_a_slow_target_may_still_answer_while_another_one_is_asked():
    async def is_slow(*_: Any) -> bytes:
        await eventually(lambda: len(handle.asked) == 2)
        return pb.LocateResponse(free_slots=3).SerializeToString()

    async with locator(is_slow, hangs, answer_s=0.6) as (stub, handle):
        assert (await stub.Locate(pb.LocateRequest(), timeout=LONG_S)).free_slots == 3
        assert [asked.is_cancelled for asked in handle.asked] == [False, True]


def test_times_fit_together():
    assert ANSWER_TIMEOUT_S / MAX_ATTEMPTS > routing.ANSWER_TIMEOUT_S, "the next attempt knows who hangs"
    assert DraftConfig().connect_timeout_s > ANSWER_TIMEOUT_S, "draft servers receive the locator's error"


async def test_a_replica_that_dies_during_a_call_is_unavailable():
    async with locator(raises(ActorDiedError())) as (stub, handle):
        error = await error_of(stub.Locate(pb.LocateRequest()))
        assert type(error) is TargetUnavailable and "ActorDiedError" in str(error)
        assert len(handle.asked) == MAX_ATTEMPTS


async def test_a_bug_in_a_replica_stays_in_the_log(caplog):
    bug = RayTaskError("locate", "RuntimeError: a secret", RuntimeError())
    async with locator(raises(bug.as_instanceof_cause())) as (stub, _):
        assert INTERNAL_ERROR in str(await error_of(stub.Locate(pb.LocateRequest())))
        assert "a secret" in caplog.text


@pytest.mark.parametrize("method", ["Verify", "Share"])
async def test_the_locator_refuses_sessions_and_the_streams_they_share(method):
    async with locator(hangs) as (stub, _):
        call = getattr(stub, method)(iter([hello() if method == "Verify" else pb.ShareRequest()]))
        error = await error_of(call.read())
        assert type(error) is InvalidRequest and "call Locate" in str(error)


async def test_a_lease_is_for_its_caller_and_unknown_tokens_are_refused(tmp_path):
    protection = {"tls": save(trustme.CA(), tmp_path, "server"), "tokens": TOKENS}
    trusting = ClientTls(tmp_path / "roots.pem")
    leases = Leases()
    async with target_server(leases=leases) as target:
        anna = Credentials(trusting, TOKEN)
        async with locator(replica_of(target), credentials=anna, **protection) as (stub, _):
            lease = (await stub.Locate(pb.LocateRequest())).lease
            leases.check(lease, "anna")
            with pytest.raises(LeaseRefused):
                leases.check(lease, "ben")
        stranger = Credentials(trusting, "0123456789abcdef-Wrong")
        async with locator(replica_of(target), credentials=stranger, **protection) as (stub, handle):
            for call in (stub.Locate(pb.LocateRequest()), stub.Describe(pb.DescribeRequest())):
                assert type(await error_of(call)) is Unauthenticated
            assert not handle.asked
