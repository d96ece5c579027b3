"""A server on a real socket: its errors, its ports, and the signals that stop it."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from specwhisper.errors import (
    InvalidAudio,
    InvalidRequest,
    PortTaken,
    ServerFull,
    SpecWhisperError,
)
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.channels import open_channel
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire.status import INTERNAL_ERROR
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc as pb_grpc
from tests.nightly import mostly_nightly
from tests.rpc.services import as_target, error_of


class Failing(pb_grpc.VerificationServicer):
    """Raises an error in each call."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    async def Locate(self, request, context):
        raise self._errors.pop(0)

    async def Verify(self, requests, context):
        async for _ in requests:
            raise self._errors.pop(0)
            yield


async def test_errors_reach_the_caller_as_they_were_raised_and_defects_stay_in_the_log(caplog):
    full, gap = ServerFull("Every slot is taken."), InvalidAudio("Its samples leave a gap.")
    servicer = Failing(full, InvalidRequest("語" * 100_000), RuntimeError("a secret"), gap)
    async with as_target(servicer) as server, open_channel(server.address) as channel:
        stub = pb_grpc.VerificationStub(channel)
        error = await error_of(stub.Locate(pb.LocateRequest()))
        assert (type(error), str(error)) == (ServerFull, str(full))
        error = await error_of(stub.Locate(pb.LocateRequest()))
        assert type(error) is InvalidRequest and str(error).endswith("語…"), "it is cut"
        error = await error_of(stub.Locate(pb.LocateRequest()))
        assert type(error) is SpecWhisperError and INTERNAL_ERROR in str(error)
        assert "secret" not in str(error) and "a secret" in caplog.text
        error = await error_of(stub.Verify(iter([pb.VerifyRequest()])))
        assert (type(error), str(error)) == (InvalidAudio, str(gap))


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
