"""A server's status arrives although the caller writes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from specwhisper.errors import ServerFull
from specwhisper.rpc.channels import GRPCIO, open_channel, with_true_status
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from tests.rpc.services import as_target, error_of

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
