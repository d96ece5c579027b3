"""A server's status arrives although the caller was writing when it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import grpc.aio
import pytest

from specwhisper.errors import ServerFull
from specwhisper.wire.channels import open_channel
from specwhisper.wire.serving import ServingOptions, start_server
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.streams import with_true_status
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

NUM_CALLS = 100
AUDIO = pb.VerifyRequest(audio=pb.Audio(data=bytes(60_000)))


class Impatient(verification_pb2_grpc.VerificationServicer):
    """Ends every stream after one message, well or not, whatever else is on its way."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def Verify(self, requests, context):
        await anext(aiter(requests))
        yield pb.VerifyResponse(commit=pb.Commit(is_final=True))
        if self._error is not None:
            raise self._error


@asynccontextmanager
async def impatient(error: Exception | None) -> AsyncIterator[verification_pb2_grpc.VerificationStub]:
    add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, Impatient(error))
    server = await start_server({"specwhisper.wire.v1.Verification": add}, ServingOptions())
    try:
        async with open_channel(server.address) as channel:
            yield verification_pb2_grpc.VerificationStub(channel)
    finally:
        await server.stop(drain_timeout_s=0)


async def endless() -> AsyncIterator[pb.VerifyRequest]:
    while True:
        yield AUDIO


async def test_an_end_without_error_stays_one():
    async with impatient(None) as stub:
        for _ in range(NUM_CALLS):
            call = with_true_status(stub.Verify(endless()))
            assert [response.commit.is_final async for response in call] == [True]


async def test_a_refusal_is_the_servers_own():
    async with impatient(ServerFull("Every slot is taken.")) as stub:
        for _ in range(NUM_CALLS):
            call = with_true_status(stub.Verify(endless()))
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                async for _ in call:
                    pass
            error = error_from_rpc(ended.value, "here")
            assert (type(error), str(error)) == (ServerFull, "Every slot is taken.")


class Core:
    """A call's core, to which no status comes by itself."""

    def __init__(self) -> None:
        self.status: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.internal_errors: list[str] = []

    def done(self) -> bool:
        return self.status.done()

    def set_internal_error(self, details: str) -> None:
        self.internal_errors.append(details)
        self.status.set_result(details)


class Call:
    def __init__(self) -> None:
        self._cython_call = Core()


@pytest.fixture
def no_grace(monkeypatch):
    monkeypatch.setattr("specwhisper.wire.streams.STATUS_GRACE_S", 0.0)


async def test_a_failed_write_is_reported_if_no_status_comes(no_grace):
    call = Call()
    core = call._cython_call
    with_true_status(call)._cython_call.set_internal_error("a write failed")
    assert await core.status == "a write failed"


async def test_a_status_that_comes_first_stays(no_grace):
    call = Call()
    core = call._cython_call
    with_true_status(call)._cython_call.set_internal_error("a write failed")
    core.status.set_result("OK")
    grace_is_over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.0, grace_is_over.set)
    await grace_is_over.wait()
    assert core.internal_errors == []
