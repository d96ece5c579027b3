"""The locator of targets on a real socket, with a fake of Ray's handle."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme
from ray.exceptions import ActorDiedError, RayTaskError

from experiments.common.models.scripted import ScriptedModel, scripted_checkpoint
from specwhisper.errors import InvalidRequest, ServerFull, TargetUnavailable
from specwhisper.rpc.channels import OPEN, Credentials, open_channel
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ClientTls
from specwhisper.rpc.tokens import Leases, Tokens
from specwhisper.types import Limits
from specwhisper.wire.status import ERROR_KEY, INTERNAL_ERROR, error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_deploy import routing
from specwhisper_deploy.locators import (
    ANSWER_TIMEOUT_S,
    MAX_ATTEMPTS,
    HandleReply,
    TargetLocatorService,
    describe_reply,
    locate_reply,
)
from specwhisper_deploy.replicas import metrics_addresses
from specwhisper_draft_server.config import DraftConfig
from tests.certificates import save
from tests.rpc.hostile import Session, hello, session
from tests.rpc.services import Target, as_target, eventually, target_server

TOKEN = "0123456789abcdef-Right"
TOKENS = Tokens({TOKEN: "anna"})
LONG_S = 60.0  # longer than any test, so a call without a timeout fails


class Response:
    """The response of a call over a handle of Serve: it can be awaited or cancelled."""

    def __init__(self, answer: Awaitable[Any], args: Sequence[Any]) -> None:
        self._answer = answer
        self.args = args
        self.is_cancelled = False

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer.__await__()

    def cancel(self) -> None:
        self.is_cancelled = True


class Method:
    """A deployment's method; each call goes to the next replica, at last to the last."""

    def __init__(self, *replicas: Callable[..., Awaitable[Any]]) -> None:
        self._replicas = list(replicas)
        self.asked: list[Response] = []

    def remote(self, *args: Any) -> Response:
        answer = self._replicas.pop(0) if len(self._replicas) > 1 else self._replicas[0]
        self.asked.append(Response(answer(*args), args))
        return self.asked[-1]


class Handle:
    """Serve's handle to a deployment of targets."""

    def __init__(self, *targets: Any) -> None:
        self.locate = Method(*(target.locate for target in targets))
        self.describe = Method(*(target.describe for target in targets))


class Broadcast:
    """The response of a call to all replicas."""

    def __init__(self, answers: list[Awaitable[Any]]) -> None:
        self._answers = answers

    async def results_async(self, *, timeout_s: float, return_exceptions: bool) -> list[Any]:
        gathered = asyncio.gather(*self._answers, return_exceptions=return_exceptions)
        return list(await asyncio.wait_for(gathered, timeout_s))


class Exporters:
    """Serve's handle to replicas that return their metrics' address; `None` hangs."""

    def __init__(self, *results: Any) -> None:
        self._results = results

    def broadcast(self, method: str) -> Broadcast:
        assert method == "metrics_address"
        return Broadcast([self._return(each) for each in self._results])

    async def _return(self, result: Any) -> Any:
        if result is None:
            await asyncio.Event().wait()
        if isinstance(result, Exception):
            raise result
        return result


class Broken:
    """A replica that raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def locate(self, *_: Any) -> None:
        raise self._error

    describe = locate


class Hanging(Broken):
    """A replica that never answers."""

    def __init__(self) -> None:
        pass

    async def locate(self, *_: Any) -> None:
        await asyncio.Event().wait()

    describe = locate


class Handler:
    """A replica of a target."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def locate(self, request: bytes, caller: str) -> HandleReply:
        return await locate_reply(self._target.service, self._target.address, request, caller)

    async def describe(self, request: bytes) -> HandleReply:
        return await describe_reply(self._target.service, request)


@asynccontextmanager
async def locator(
    *targets: Any,
    answer_s: float = LONG_S,
    credentials: Credentials = OPEN,
    **options: Any,
) -> AsyncIterator[tuple[verification_pb2_grpc.VerificationStub, Handle]]:
    handle = Handle(*targets)
    async with (
        as_target(TargetLocatorService(handle, answer_s), ServingOptions(**options)) as server,
        open_channel(server.address, credentials) as channel,
    ):
        yield verification_pb2_grpc.VerificationStub(channel), handle


async def opened(target: Target) -> Session:
    """Open a session, which takes a slot."""
    session = Session(target)
    await session.send(hello())
    await session.read_until("welcome")
    return session


async def refusal(call: Awaitable[Any]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


async def test_the_locator_returns_a_target_with_a_lease_and_describes_it():
    async with target_server(leases=Leases()) as target, locator(Handler(target)) as (stub, _):
        place = await stub.Locate(pb.LocateRequest())
        assert (place.address, place.free_slots) == (target.address, target.num_free_slots)
        async with session(target, hello(lease=place.lease)) as leased:
            await leased.read_until("welcome")
        assert await stub.Describe(pb.DescribeRequest()) == await target.stub.Describe(pb.DescribeRequest())


async def test_another_target_is_asked_if_one_is_full(caplog):
    async with (
        target_server(limits=Limits(max_sessions=1)) as full,
        target_server() as empty,
        locator(Handler(full), Handler(empty)) as (stub, handle),
    ):
        session = await opened(full)
        assert (await stub.Locate(pb.LocateRequest())).address == empty.address
        session.cancel()
    assert len(handle.locate.asked) == 2
    assert "Traceback" not in caplog.text


OTHER = replace(scripted_checkpoint(), weights_digest="digest of another one")


async def test_another_target_is_asked_if_one_does_not_match():
    async with (
        target_server(ScriptedModel(8), OTHER) as other,
        target_server() as target,
        locator(Handler(other), Handler(target)) as (stub, handle),
    ):
        weights = (await target.stub.Describe(pb.DescribeRequest())).weights_digest
        assert (await stub.Locate(pb.LocateRequest(weights_digest=weights))).address == target.address
    assert len(handle.locate.asked) == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_full_match_is_reported_rather_than_a_mismatch(order):
    async with (
        target_server(ScriptedModel(8), OTHER) as other,
        target_server(limits=Limits(max_sessions=1)) as full,
        locator(*(Handler((other, full)[each]) for each in order)) as (stub, _),
    ):
        session = await opened(full)
        weights = (await full.stub.Describe(pb.DescribeRequest())).weights_digest
        error = await refusal(stub.Locate(pb.LocateRequest(weights_digest=weights)))
        session.cancel()
    assert dict(error.trailing_metadata())[ERROR_KEY] == ServerFull.__name__


@pytest.mark.parametrize("method", ["Locate", "Describe"])
async def test_a_call_to_a_hanging_target_times_out(method):
    async with locator(Hanging(), answer_s=0.05) as (stub, handle):
        request = pb.LocateRequest() if method == "Locate" else pb.DescribeRequest()
        error = await refusal(getattr(stub, method)(request, timeout=LONG_S))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert type(error_from_rpc(error, "locator:1")) is TargetUnavailable
        assert "within 0.05 s" in error.details()
        assert [asked.is_cancelled for asked in getattr(handle, method.lower()).asked] == [
            True
        ] * MAX_ATTEMPTS


@pytest.mark.parametrize("method", ["Locate", "Describe"])
@pytest.mark.parametrize("other", [Hanging(), Broken(ActorDiedError())], ids=["hangs", "has died"])
async def test_another_target_is_asked_if_one_does_not_answer(method, other):
    async with (
        target_server() as target,
        locator(other, Handler(target), answer_s=0.6) as (stub, handle),
    ):
        request = pb.LocateRequest() if method == "Locate" else pb.DescribeRequest()
        reply = await getattr(stub, method)(request, timeout=LONG_S)
        assert reply.free_slots if method == "Locate" else reply.model
        cancelled = [asked.is_cancelled for asked in getattr(handle, method.lower()).asked]
        assert cancelled == [isinstance(other, Hanging), False]


async def test_a_slow_target_may_still_answer_while_another_one_is_asked():
    class Slow:
        async def locate(self, *_: Any) -> bytes:
            await eventually(lambda: len(handle.locate.asked) == 2)
            return pb.LocateResponse(free_slots=3).SerializeToString()

        describe = locate

    async with locator(Slow(), Hanging(), answer_s=0.6) as (stub, handle):
        assert (await stub.Locate(pb.LocateRequest(), timeout=LONG_S)).free_slots == 3
        assert [asked.is_cancelled for asked in handle.locate.asked] == [False, True]


def test_times_fit_together():
    assert ANSWER_TIMEOUT_S / MAX_ATTEMPTS > routing.ANSWER_TIMEOUT_S, "the next attempt knows who hangs"
    assert DraftConfig().connect_timeout_s > ANSWER_TIMEOUT_S, "draft servers receive the locator's error"


async def test_a_replica_that_dies_during_a_call_is_unavailable():
    async with locator(Broken(ActorDiedError())) as (stub, handle):
        error = await refusal(stub.Locate(pb.LocateRequest()))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "ActorDiedError" in error.details()
        assert len(handle.locate.asked) == MAX_ATTEMPTS


async def test_a_bug_in_a_replica_stays_in_the_log(caplog):
    bug = RayTaskError("locate", "RuntimeError: a secret", RuntimeError())
    async with locator(Broken(bug.as_instanceof_cause())) as (stub, _):
        error = await refusal(stub.Locate(pb.LocateRequest()))
        assert error.code() is grpc.StatusCode.INTERNAL
        assert error.details() == INTERNAL_ERROR
        assert "a secret" in caplog.text


@pytest.mark.parametrize("method", ["Verify", "Share"])
async def test_the_locator_refuses_sessions_and_the_streams_they_share(method):
    async with locator(Hanging()) as (stub, _):
        call = getattr(stub, method)(iter([hello() if method == "Verify" else pb.ShareRequest()]))
        error = error_from_rpc(await refusal(call.read()), "locator:1")
        assert type(error) is InvalidRequest
        assert "call Locate" in str(error)


async def test_a_lease_is_for_its_caller_and_unknown_tokens_are_refused(tmp_path):
    protection = {"tls": save(trustme.CA(), tmp_path, "server"), "tokens": TOKENS}
    trusting = ClientTls(tmp_path / "roots.pem")
    leases = Leases()
    async with target_server(leases=leases) as target:
        anna = Credentials(trusting, TOKEN)
        async with locator(Handler(target), credentials=anna, **protection) as (stub, _):
            leases.check((await stub.Locate(pb.LocateRequest())).lease, "anna")
            assert (await stub.Describe(pb.DescribeRequest())).model
        stranger = Credentials(trusting, "0123456789abcdef-Wrong")
        async with locator(Handler(target), credentials=stranger, **protection) as (stub, handle):
            for call in (stub.Locate(pb.LocateRequest()), stub.Describe(pb.DescribeRequest())):
                assert (await refusal(call)).code() is grpc.StatusCode.UNAUTHENTICATED
            assert not handle.locate.asked + handle.describe.asked


async def test_metrics_addresses_leave_out_a_target_that_has_died():
    replicas = Exporters("b:2", "", ActorDiedError(), "a:1")
    assert await asyncio.to_thread(metrics_addresses(replicas, LONG_S)) == ["a:1", "b:2"]


async def test_metrics_addresses_fail_if_a_target_hangs():
    with pytest.raises(TargetUnavailable, match="where their metrics are"):
        await asyncio.to_thread(metrics_addresses(Exporters("a:1", None), 0.1))
