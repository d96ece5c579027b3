"""Keepalive pings end a connection whose peer has vanished without closing it."""

import asyncio

import grpc
import grpc.aio
import pytest

from experiments.common.servers.proxy import Proxy
from specwhisper.rpc.channels import keepalive

SOON = keepalive(1.0, 1.0)
WAIT_S = 30.0  # half of gRPC's own time limit
METHOD = "/test.Echo/Echo"


def echoing(options: list[tuple[str, int]]) -> tuple[grpc.aio.Server, asyncio.Event]:
    """Return a server that echoes messages, and an event set when a call has ended."""
    ended = asyncio.Event()

    async def echo(requests, context):
        try:
            async for request in requests:
                await context.write(request)
        finally:
            ended.set()

    server = grpc.aio.server(options=options)
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    return server, ended


@pytest.mark.parametrize("side", ["server", "client"])
async def test_one_side_notices_that_the_other_has_vanished(side):
    server, ended = echoing(SOON if side == "server" else [])
    async with Proxy.listening() as network:
        network.upstream = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        options = SOON if side == "client" else []
        async with grpc.aio.insecure_channel(network.address, options=options) as channel:
            call = channel.stream_stream(METHOD)()
            await call.write(b"here")
            assert await call.read() == b"here"
            network.freeze()
            async with asyncio.timeout(WAIT_S):
                if side == "server":
                    await ended.wait()
                else:
                    assert await call.code() is grpc.StatusCode.UNAVAILABLE
            call.cancel()
    await server.stop(None)
