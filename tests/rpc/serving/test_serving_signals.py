"""A server process drains on SIGTERM, however often it is sent."""

import json
import signal
import subprocess
import sys
from contextlib import suppress

import grpc
import pytest

from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc as pb_grpc
from tests.nightly import mostly_nightly

SERVER = """
import asyncio
import gc
from functools import partial
from specwhisper.observe.logs import LogFormat, configure_logging
from specwhisper.rpc.serving import serve
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire.v1 import verification_pb2 as pb, verification_pb2_grpc as pb_grpc

class Echo(pb_grpc.VerificationServicer):
    async def Verify(self, requests, context):
        async for request in requests:
            yield pb.VerifyResponse(heartbeat=request.heartbeat)

configure_logging(LogFormat.JSON)
add = partial(pb_grpc.add_VerificationServicer_to_server, Echo())
asyncio.run(serve({"specwhisper.wire.v1.Verification": add}, ServingOptions()))
print(gc.get_freeze_count())
"""

GATEWAY = """
import asyncio
import gc
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.server import run
from specwhisper.observe.logs import LogFormat, configure_logging

configure_logging(LogFormat.JSON)
asyncio.run(run(GatewayConfig(server="127.0.0.1:9", port=0)))
print(gc.get_freeze_count())
"""


@pytest.fixture
def program():
    return SERVER


@pytest.fixture
def server(program):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", program], **pipes, text=True)
    with process:
        yield process
        process.kill()


def next_event(server, message):
    for line in server.stderr:
        event = json.loads(line)
        if event["message"] == message:
            return event
    raise EOFError(f"The server ended before it said '{message}'.")


@pytest.mark.parametrize("program", [SERVER, GATEWAY], ids=["server", "gateway"])
@pytest.mark.parametrize("number", mostly_nightly([signal.SIGTERM, signal.SIGINT]))
def test_signals_until_the_end_stop_an_idle_server(server, number):
    next_event(server, "ready")
    status = None
    while status is None:
        server.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            status = server.wait(timeout=0.005)
    assert status == 0
    # A full garbage collection would stop all sessions while it visits imported libraries.
    assert int(server.stdout.read()) > 10_000, "loaded objects are frozen"


async def test_an_open_stream_survives_repeated_signals(server):
    address = next_event(server, "ready")["address"]
    async with grpc.aio.insecure_channel(address) as channel:
        stream = pb_grpc.VerificationStub(channel).Verify()
        beat = pb.VerifyRequest(heartbeat=pb.Heartbeat(sent_ns=1))
        await stream.write(beat)
        await stream.read()
        server.send_signal(signal.SIGTERM)
        assert next_event(server, "draining")["open_calls"] == 1
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGINT)
        await stream.write(beat)
        assert (await stream.read()).heartbeat.sent_ns == 1
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
    assert server.wait(timeout=30) == 0
