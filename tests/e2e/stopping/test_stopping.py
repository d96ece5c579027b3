"""On SIGTERM open sessions finish, new ones are refused; exit status 0."""

import asyncio
import signal

import grpc.aio
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specwhisper.errors import ServerDraining
from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2_grpc
from tests.e2e.processes import Server

pytestmark = pytest.mark.timeout(600)

CONFIG = pb.StreamingRecognizeRequest(
    streaming_config=pb.StreamingRecognitionConfig(
        config=pb.RecognitionConfig(encoding="AUDIO_ENCODING_LINEAR16", sample_rate_hertz=16_000)
    )
)
SECOND = np.random.default_rng(1).integers(-3_000, 3_000, 16_000).astype("<i2").tobytes()
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def open_session(channel: grpc.aio.Channel, target: Server):
    """Open a session and send part of its recording; both servers have opened it."""
    call = with_true_status(transcription_pb2_grpc.TranscriptionStub(channel).StreamingRecognize())
    await call.write(CONFIG)
    await call.write(pb.StreamingRecognizeRequest(audio_content=SECOND))
    await call.read()
    await asyncio.to_thread(target.wait_event, "session opened")
    return call


async def error_of_new_session(channel: grpc.aio.Channel) -> Exception:
    call = with_true_status(
        transcription_pb2_grpc.TranscriptionStub(channel).StreamingRecognize(iter([CONFIG]))
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in call:
            pass
    return error_from_rpc(refused.value, "the server")


@pytest.fixture
def servers(checkpoints, start_server, unused_tcp_port) -> tuple[Server, Server]:
    target = ("specwhisper_target_server", "--model", checkpoints.target, "--port", unused_tcp_port)
    draft = ("specwhisper_draft_server", "--draft-model", checkpoints.draft)
    draft += ("--target", f"127.0.0.1:{unused_tcp_port}")
    draft += ("--resume-timeout", "0")  # else a new session waits for another target
    return start_server(*target), start_server(*draft)


async def test_an_open_session_finishes_and_a_new_one_is_refused(servers):
    target, draft = servers
    assert target.address
    async with open_channel(draft.address) as channel, open_channel(target.address) as to_target:
        call = await open_session(channel, target)
        target.send_signal(signal.SIGTERM)
        await asyncio.to_thread(target.wait_event, "draining", open_calls=2)  # and that for candidates
        reply = await health_pb2_grpc.HealthStub(to_target).Check(health_pb2.HealthCheckRequest())
        assert reply.status == NOT_SERVING
        assert type(await error_of_new_session(channel)) is ServerDraining  # raised by the target
        draft.send_signal(signal.SIGTERM)
        await asyncio.to_thread(draft.wait_event, "draining")
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert reply.status == NOT_SERVING
        assert type(await error_of_new_session(channel)) is ServerDraining  # raised by the draft server
        for server in servers:
            server.send_signal(signal.SIGTERM)
            server.send_signal(signal.SIGINT)
        await call.done_writing()
        responses = []
        while (response := await call.read()) is not grpc.aio.EOF:
            responses.append(response)
        assert responses[-1].statistics.num_windows > 0
        assert responses[-1].audio_received.seconds == 1
    for server in servers:
        status, out, _ = await asyncio.to_thread(server.wait)
        assert (status, out) == (0, "")
        assert server.events[-1]["message"] == "stopped"
