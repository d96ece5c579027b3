"""A server on a real socket: errors, limits, health, drain; as a process it drains on SIGTERM."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specwhisper.errors import (
    InvalidAudio,
    InvalidRequest,
    PortTaken,
    ServerDraining,
    ServerFull,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.channels import open_channel
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire.status import INTERNAL_ERROR
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc as pb_grpc
from tests.nightly import mostly_nightly
from tests.rpc.hostile import heartbeat
from tests.rpc.services import VERIFICATION, as_target, error_of


def asking(text: str) -> pb.LocateRequest:
    return pb.LocateRequest(software_version=text)


class Scripted(pb_grpc.VerificationServicer):
    """A servicer that a request's text scripts."""

    def __init__(self):
        self.is_open = asyncio.Event()
        self.has_ended = asyncio.Event()

    async def Locate(self, request, context):
        if request.software_version == "full":
            raise ServerFull("Every slot is taken.")
        if request.software_version == "broken":
            raise RuntimeError("a secret")
        if request.software_version == "endless":
            raise InvalidRequest("語" * 100_000)
        return pb.LocateResponse(address=request.software_version)

    async def Verify(self, requests, context):
        try:
            self.is_open.set()
            async for request in requests:
                if request.WhichOneof("message") == "audio":
                    raise InvalidAudio("Its samples leave a gap.")
                yield pb.VerifyResponse(heartbeat=pb.Heartbeat(echo_ns=request.heartbeat.sent_ns))
        finally:
            self.has_ended.set()


async def test_errors_reach_the_caller_as_they_were_raised_and_defects_stay_in_the_log(caplog):
    async with as_target(Scripted()) as server, open_channel(server.address) as channel:
        stub = pb_grpc.VerificationStub(channel)
        error = await error_of(stub.Locate(asking("full")))
        assert (type(error), str(error)) == (ServerFull, "Every slot is taken.")
        error = await error_of(stub.Locate(asking("endless")))
        assert type(error) is InvalidRequest and str(error).endswith("語…"), "it is cut"
        error = await error_of(stub.Locate(asking("broken")))
        assert type(error) is SpecWhisperError and INTERNAL_ERROR in str(error)
        assert "secret" not in str(error) and "a secret" in caplog.text
        stream = stub.Verify()
        await stream.write(pb.VerifyRequest(audio=pb.Audio(data=b"12")))
        error = await error_of(stream.read())
        assert (type(error), str(error)) == (InvalidAudio, "Its samples leave a gap.")


async def test_stopping_lets_open_calls_end_and_refuses_new_ones():
    async with as_target(Scripted()) as server, open_channel(server.address) as channel:
        stub, health = pb_grpc.VerificationStub(channel), health_pb2_grpc.HealthStub(channel)
        stream = stub.Verify()
        await stream.write(heartbeat())
        await stream.read()
        asked = health_pb2.HealthCheckRequest(service=VERIFICATION)
        assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.SERVING
        drained = asyncio.Event()

        async def on_drain():
            drained.set()

        stopping = asyncio.create_task(server.stop(drain_timeout_s=60, on_drain=on_drain))
        await drained.wait()
        assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert type(await error_of(stub.Locate(pb.LocateRequest()))) is ServerDraining
        await stream.write(heartbeat(2))
        assert (await stream.read()).heartbeat.echo_ns == 2
        assert not stopping.done()
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        await stopping


async def test_a_call_that_does_not_end_is_cut_off():
    servicer = Scripted()
    async with as_target(servicer) as server, open_channel(server.address) as channel:
        stream = pb_grpc.VerificationStub(channel).Verify()
        await servicer.is_open.wait()
        await server.stop(drain_timeout_s=0)
        await servicer.has_ended.wait()
        assert type(await error_of(stream.read())) is TargetUnavailable


@pytest.mark.parametrize("is_taken", ["port", "metrics_port"])
async def test_a_server_starts_completely_or_not_at_all(is_taken, unused_tcp_port_factory):
    ports = {"port": unused_tcp_port_factory(), "metrics_port": unused_tcp_port_factory()}
    metrics = ServerMetrics("specwhisper_test", model="m", dtype="float32", device="cpu")
    with socket.create_server(("127.0.0.1", ports[is_taken])):
        with pytest.raises(PortTaken, match="port is taken"):
            await start_server({}, ServingOptions(**ports), metrics)
        with pytest.raises(PortTaken, match="port is taken"):
            ServingOptions(**ports).check_ports()
        (other,) = (port for name, port in ports.items() if name != is_taken)
        socket.create_server(("127.0.0.1", other)).close()
    ServingOptions(**ports).check_ports()
    server = await start_server({}, ServingOptions(**ports), metrics)
    await server.stop(drain_timeout_s=0)


SERVER = """
import asyncio
import gc
from specwhisper.observe.logs import LogFormat, configure_logging
from specwhisper.rpc.serving import serve
from specwhisper.rpc.serving_options import ServingOptions

configure_logging(LogFormat.JSON)
asyncio.run(serve({}, ServingOptions()))
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


@pytest.mark.parametrize("program", [SERVER, GATEWAY], ids=["server", "gateway"])
@pytest.mark.parametrize("number", mostly_nightly([signal.SIGTERM, signal.SIGINT]))
def test_signals_until_the_end_stop_an_idle_server(program, number):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes, text=True) as server:
        try:
            assert any(json.loads(line)["message"] == "ready" for line in server.stderr)
            status = None
            while status is None:
                server.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    status = server.wait(timeout=0.005)
        finally:
            server.kill()
        assert status == 0
        # A full garbage collection would stop all sessions while it visits imported libraries.
        assert int(server.stdout.read()) > 10_000, "loaded objects are frozen"
