"""A unary response that its client does not read ends the call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from specwhisper.rpc.serving import RunningServer, start_server
from specwhisper.rpc.serving_options import ServingOptions
from tests.rpc.services import PROMPTLY_S, SMALL_BUFFERS, eventually

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
    server = await start_server(
        {SERVICE: lambda at: at.add_generic_rpc_handlers((Getting(),))}, ServingOptions(**options)
    )
    try:
        async with grpc.aio.insecure_channel(server.address, SMALL_BUFFERS) as channel:
            call = channel.unary_stream(METHOD)(b"")
            await eventually(lambda: server.calls.num_open == 1)
            yield server, call
    finally:
        await server.stop(drain_timeout_s=0)


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
