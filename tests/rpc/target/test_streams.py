"""A server's status arrives although the caller writes; an unread response ends its call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from specwhisper.errors import ServerFull
from specwhisper.rpc.channels import GRPCIO, open_channel, with_true_status
from specwhisper.rpc.serving import RunningServer
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from tests.rpc.services import PROMPTLY_S, SMALL_BUFFERS, as_target, error_of, eventually, running

NUM_CALLS = 100
AUDIO = pb.VerifyRequest(audio=pb.Audio(data=bytes(60_000)))


class EndsEarly(verification_pb2_grpc.VerificationServicer):
    """Ends every stream after one message, with or without an error."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def Verify(self, requests, context):
        await anext(aiter(requests))
        yield pb.VerifyResponse(going_away=pb.GoingAway(reason="test"))
        if self._error is not None:
            raise self._error


@asynccontextmanager
async def early_end(error: Exception | None) -> AsyncIterator[verification_pb2_grpc.VerificationStub]:
    async with as_target(EndsEarly(error)) as server, open_channel(server.address) as channel:
        yield verification_pb2_grpc.VerificationStub(channel)


async def endless() -> AsyncIterator[pb.VerifyRequest]:
    while True:
        yield AUDIO


async def test_an_end_is_the_servers_with_its_error_if_it_has_one():
    async with early_end(None) as ends, early_end(ServerFull("Every slot is taken.")) as refuses:
        for _ in range(NUM_CALLS):
            call = with_true_status(ends.Verify(endless()))
            assert [response.going_away.reason async for response in call] == ["test"]
            call = with_true_status(refuses.Verify(endless()))
            error = await error_of(call)
            assert (type(error), str(error)) == (ServerFull, "Every slot is taken.")


async def test_a_refusal_waits_for_a_slow_reader():
    """The status arrives when the messages before it are read, however late."""

    async def write() -> None:
        while True:
            await call.write(AUDIO)

    async with early_end(ServerFull("Every slot is taken.")) as stub:
        call = with_true_status(stub.Verify())
        writing = asyncio.create_task(write())
        await asyncio.wait([writing], timeout=0.2)
        assert (await call.read()).going_away.reason
        assert type(await error_of(call.read())) is ServerFull
        await asyncio.gather(writing, return_exceptions=True)


@pytest.mark.parametrize(
    ("details", "is_reported"),
    [
        ("Failed grpc_call_start_batch: 8 with grpc_call_error value: '...'", True),
        ('Failed "execute_batch": (<SendMessageOperation>,)', False),
    ],
)
def test_a_write_that_never_began_is_reported(details, is_reported):
    errors: list[str] = []
    call = SimpleNamespace(_cython_call=SimpleNamespace(set_internal_error=errors.append))
    with_true_status(call)._cython_call.set_internal_error(details)
    assert errors == [details] * is_reported


def test_grpcio_has_the_tested_release():
    """Run this file with a new release, then name it in ``channels.py``."""
    assert grpc.__version__.rpartition(".")[0] == GRPCIO


async def test_a_call_has_the_core_object_that_is_wrapped():
    async with open_channel("127.0.0.1:1") as channel:
        call = verification_pb2_grpc.VerificationStub(channel).Verify()
        with_true_status(call)
        call.cancel()
        assert callable(call._cython_call._core.set_internal_error)


SERVICE, METHOD = "a.Service", "/a.Service/Get"
ANSWER = bytes(1024 * 1024)  # more than gRPC buffers for a client that reads nothing


class Getting(grpc.GenericRpcHandler):
    """Has one unary method."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        async def get(request: bytes, context: object) -> bytes:
            return ANSWER

        return grpc.unary_unary_rpc_method_handler(get, request_deserializer=bytes)


@asynccontextmanager
async def pending_call(**options: float) -> AsyncIterator[tuple[RunningServer, grpc.aio.UnaryStreamCall]]:
    """Yield a server and a stream call with an unread response."""
    add = {SERVICE: lambda server: server.add_generic_rpc_handlers((Getting(),))}
    async with (
        running(add, ServingOptions(**options)) as server,
        grpc.aio.insecure_channel(server.address, SMALL_BUFFERS) as channel,
    ):
        call = channel.unary_stream(METHOD)(b"")
        await eventually(lambda: server.calls.num_open == 1)
        yield server, call


async def test_an_unread_response_ends_its_call():
    async with pending_call(idle_timeout_s=0.2) as (server, call):
        await asyncio.wait_for(server.calls.wait_idle(), PROMPTLY_S)
        assert await call.read() == ANSWER  # it was in flight
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_stopping_server_waits_until_a_response_is_read():
    async with pending_call() as (server, call):
        stopping = asyncio.create_task(server.stop(drain_timeout_s=PROMPTLY_S))
        await eventually(lambda: server.calls.is_draining)
        assert server.calls.num_open == 1
        assert await call.read() == ANSWER
        assert await call.read() is grpc.aio.EOF
        await stopping
