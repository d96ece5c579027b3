"""A single answer that nobody takes ends its call, as a stream's do; one that is late is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from specwhisper.rpc.serving import RunningServer, start_server
from specwhisper.rpc.serving_options import ServingOptions
from tests.rpc.services import PROMPTLY_S, eventually

SERVICE, METHOD = "a.Service", "/a.Service/Get"
ANSWER = bytes(1024 * 1024)  # more than gRPC takes for a caller who reads nothing
TAKES_LITTLE = (("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0))


class Getting(grpc.GenericRpcHandler):
    """Has one method, with one request and one answer."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        async def get(request: bytes, context: object) -> bytes:
            return ANSWER

        return grpc.unary_unary_rpc_method_handler(get, request_deserializer=bytes)


@asynccontextmanager
async def asked(**options: float) -> AsyncIterator[tuple[RunningServer, grpc.aio.UnaryStreamCall]]:
    """A server, and a call whose answer waits: only a stream's is taken when its caller asks for it."""
    server = await start_server(
        {SERVICE: lambda at: at.add_generic_rpc_handlers((Getting(),))}, ServingOptions(**options)
    )
    try:
        async with grpc.aio.insecure_channel(server.address, TAKES_LITTLE) as channel:
            call = channel.unary_stream(METHOD)(b"")
            await eventually(lambda: server.calls.num_open == 1)
            yield server, call
    finally:
        await server.stop(drain_timeout_s=0)


async def test_an_answer_that_nobody_takes_ends_its_call():
    async with asked(idle_timeout_s=0.2) as (server, call):
        await asyncio.wait_for(server.calls.wait_idle(), PROMPTLY_S)
        assert await call.read() == ANSWER  # it was on its way
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_server_that_stops_waits_for_an_answer_to_be_taken():
    async with asked() as (server, call):
        stopping = asyncio.create_task(server.stop(drain_timeout_s=PROMPTLY_S))
        await eventually(lambda: server.calls.is_draining)
        assert server.calls.num_open == 1
        assert await call.read() == ANSWER
        assert await call.read() is grpc.aio.EOF
        await stopping
