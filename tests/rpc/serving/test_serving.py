"""A server on a real socket: errors, limits, health, reflection and drain."""

import asyncio
import socket
from contextlib import asynccontextmanager
from functools import partial

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from specwhisper.errors import (
    InvalidCandidates,
    InvalidRequest,
    MessageTooLarge,
    PortTaken,
    ServerDraining,
    ServerFull,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.observe.metrics.server import ServerMetrics
from specwhisper.rpc.channels import open_channel
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire.status import INTERNAL_ERROR, error_from_rpc
from specwhisper.wire.v1 import transcription_pb2, transcription_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc as pb_grpc

SERVICE = "specwhisper.wire.v1.Verification"
LIMIT = 10_000


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
                if request.WhichOneof("message") == "candidates":
                    raise InvalidCandidates("Token 9 is out of range.")
                yield pb.VerifyResponse(heartbeat=pb.Heartbeat(echo_ns=request.heartbeat.sent_ns))
        finally:
            self.has_ended.set()


@asynccontextmanager
async def serving(servicer, **options):
    add = partial(pb_grpc.add_VerificationServicer_to_server, servicer)
    server = await start_server({SERVICE: add}, ServingOptions(max_message_bytes=LIMIT, **options))
    try:
        async with open_channel(server.address) as channel:
            yield server, channel
    finally:
        await server.stop(drain_timeout_s=0)


async def error_of(call, peer="peer:1"):
    """Return the project's error that ended a call."""
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await call
    return error_from_rpc(ended.value, peer)


def heartbeat(sent_ns=1):
    return pb.VerifyRequest(heartbeat=pb.Heartbeat(sent_ns=sent_ns))


async def test_errors_reach_the_caller_as_they_were_raised():
    async with serving(Scripted()) as (_, channel):
        stub = pb_grpc.VerificationStub(channel)
        error = await error_of(stub.Locate(asking("full")))
        assert (type(error), str(error)) == (ServerFull, "Every slot is taken.")
        stream = stub.Verify()
        await stream.write(pb.VerifyRequest(candidates=pb.Candidates(tokens=[9])))
        error = await error_of(stream.read())
        assert (type(error), str(error)) == (InvalidCandidates, "Token 9 is out of range.")


async def test_a_very_long_error_message_is_cut():
    async with serving(Scripted()) as (_, channel):
        error = await error_of(pb_grpc.VerificationStub(channel).Locate(asking("endless")))
        assert type(error) is InvalidRequest
        assert str(error).endswith("語…")


async def test_details_of_a_defect_stay_in_the_log(caplog):
    async with serving(Scripted()) as (_, channel):
        error = await error_of(pb_grpc.VerificationStub(channel).Locate(asking("broken")))
        assert type(error) is SpecWhisperError
        assert INTERNAL_ERROR in str(error)
        assert "secret" not in str(error)
        assert "a secret" in caplog.text


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_message_over_the_limit_is_refused_with_both_sizes(is_stream):
    servicer = Scripted()
    async with serving(servicer) as (server, channel):
        stub = pb_grpc.VerificationStub(channel)
        if is_stream:
            stream = stub.Verify()
            await stream.write(heartbeat())
            await stream.read()
            await stream.write(pb.VerifyRequest(audio=pb.Audio(data=bytes(LIMIT))))
            error = await error_of(stream.read(), server.address)
            await servicer.has_ended.wait()
        else:
            error = await error_of(stub.Locate(asking("x" * LIMIT)), server.address)
        assert type(error) is MessageTooLarge
        assert f"{LIMIT} bytes allowed to or from {server.address}" in str(error)


async def test_a_message_at_the_limit_passes():
    async with serving(Scripted()) as (_, channel):
        request = pb.LocateRequest(software_version="x" * (LIMIT - 3))
        assert request.ByteSize() == LIMIT
        await pb_grpc.VerificationStub(channel).Locate(request)


async def test_a_client_that_disconnects_ends_its_handler():
    servicer = Scripted()
    async with serving(servicer) as (server, channel):
        stream = pb_grpc.VerificationStub(channel).Verify()
        await stream.write(heartbeat())
        await stream.read()
        assert server.calls.num_open == 1
        stream.cancel()
        await servicer.has_ended.wait()
        await server.calls.wait_idle()


async def test_reflection_lists_the_services():
    async with serving(Scripted()) as (_, channel):
        stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        reply = await stream.read()
        await stream.done_writing()
        names = {service.name for service in reply.list_services_response.service}
        assert {SERVICE, "grpc.health.v1.Health"} <= names


async def test_a_missing_service_is_named():
    async with serving(Scripted()) as (server, channel):
        stub = transcription_pb2_grpc.TranscriptionStub(channel)
        error = await error_of(stub.GetModel(transcription_pb2.GetModelRequest()), server.address)
        assert type(error) is InvalidRequest
        assert f"The server at {server.address} does not offer this service" in str(error)


async def test_a_missing_server_is_reported_in_one_sentence():
    async with serving(Scripted()) as (server, _):
        address = server.address
    async with open_channel(address) as channel:
        error = await error_of(pb_grpc.VerificationStub(channel).Locate(pb.LocateRequest()), address)
        assert type(error) is TargetUnavailable
        assert str(error) == f"No server answers at {address}; is it running?"


async def test_stopping_lets_open_calls_end_and_refuses_new_ones():
    async with serving(Scripted()) as (server, channel):
        stub, health = pb_grpc.VerificationStub(channel), health_pb2_grpc.HealthStub(channel)
        stream = stub.Verify()
        await stream.write(heartbeat())
        await stream.read()
        asked = health_pb2.HealthCheckRequest(service=SERVICE)
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
    async with serving(servicer) as (server, channel):
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
        (other,) = (port for name, port in ports.items() if name != is_taken)
        socket.create_server(("127.0.0.1", other)).close()
    server = await start_server({}, ServingOptions(**ports), metrics)
    await server.stop(drain_timeout_s=0)
