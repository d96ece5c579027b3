"""When servers or clients fail, the others continue and every slot is freed."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial

import grpc.aio
import pytest

from experiments.common.models.scripted import ScriptedModel
from specwhisper.errors import TargetUnavailable
from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.types import Limits
from specwhisper.wire import codec
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2_grpc, verification_pb2, verification_pb2_grpc
from specwhisper_draft_server.link import grpc_target_stream
from tests.rpc.bad_network import bad_network
from tests.rpc.gated import Gated
from tests.rpc.services import (
    MAX_SESSIONS,
    MODES,
    PROMPTLY_S,
    all_free,
    audio_requests,
    check_statistics,
    draft_server,
    error_of,
    eventually,
    expected_finals,
    finals,
    is_one_sentence,
    recording,
    running_pair,
    stream,
    streaming_config,
    target_alone,
    target_server,
)


async def live_session(stub, length_s: float = 35.0, mode: str = "MODE_FULL"):
    """Open a session in the middle of a recording, with text of the first window."""
    call = with_true_status(stub.StreamingRecognize())
    for request in (streaming_config(mode=mode), *audio_requests(recording(length_s))):
        await call.write(request)
    while not finals([await call.read()]):
        pass
    return call


async def ended_with(call) -> Exception:
    """Return the error of a call that has been read in part."""
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        while await call.read() is not grpc.aio.EOF:
            pass
    return error_from_rpc(ended.value, "the server")


async def test_no_target_then_a_target_on_the_same_channel(unused_tcp_port):
    address = f"127.0.0.1:{unused_tcp_port}"
    async with draft_server(address, connect_timeout_s=0.3) as draft:
        for call in (
            draft.stub.GetModel(pb.GetModelRequest()),
            with_true_status(draft.stub.StreamingRecognize(iter([streaming_config()]))),
            draft.stub.Recognize(pb.RecognizeRequest(audio=b"RIFF")),
        ):
            error = await error_of(call)
            assert type(error) is TargetUnavailable
            assert str(error) == f"No target server answered at {address} within 0.3 s; is it running?"
        assert draft.service.num_sessions == 0
    async with draft_server(address, connect_timeout_s=30) as draft:
        early = asyncio.create_task(stream(draft, recording(1.0)))  # waits for a target
        await eventually(lambda: draft.service.num_sessions == 1)
        async with target_server(port=unused_tcp_port):
            assert finals(await early) == expected_finals(target_alone(1.0))


@pytest.mark.parametrize("mode", MODES)
async def test_a_target_that_is_lost_mid_stream(mode):
    """The test cuts its connections; tests/e2e kills the process."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(target_server())
        settings = {"connect_timeout_s": 10, "resume_timeout_s": 0.5}
        draft = await stack.enter_async_context(draft_server(first.address, **settings))
        call = await live_session(draft.stub, mode=mode)
        await first.server.stop(drain_timeout_s=0)
        error = await ended_with(call)
        assert type(error) is TargetUnavailable
        assert is_one_sentence(error)
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
        port = int(first.address.rpartition(":")[2])
        async with target_server(port=port) as second:
            assert finals(await stream(draft, recording(1.0))) == expected_finals(target_alone(1.0))
            await all_free(second, draft)


async def test_a_cut_connection_frees_both_ends():
    async with (
        target_server() as target,
        bad_network(target.address) as network,
        draft_server(network.address, resume_timeout_s=0.5) as draft,
    ):
        call = await live_session(draft.stub)
        await network.stop(drain_timeout_s=0)
        error = await ended_with(call)
        assert type(error) is TargetUnavailable
        assert is_one_sentence(error)
        await all_free(target, draft)


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_cancels_mid_stream(mode):
    async with running_pair() as (target, draft):
        calls = [await live_session(draft.stub, mode=mode) for _ in range(3)]
        assert target.num_free_slots == MAX_SESSIONS - 3
        for call in calls[:2]:
            call.cancel()
        await eventually(lambda: target.num_free_slots == MAX_SESSIONS - 1, within_s=PROMPTLY_S)
        await calls[2].done_writing()  # the third session stays open
        responses = [response async for response in read_on(calls[2])]
        assert responses[-1].statistics.num_windows == len(target_alone(35.0).window_tokens)
        assert finals(await stream(draft, recording(1.0))) == expected_finals(target_alone(1.0))
        await all_free(target, draft)


async def read_on(call):
    while (response := await call.read()) is not grpc.aio.EOF:
        yield response


async def test_a_client_whose_connection_drops():
    """The socket closes during the stream, as when a laptop is closed."""
    async with running_pair() as (target, draft):
        host, port = draft.address.rsplit(":", 1)
        loop = asyncio.get_running_loop()

        async def forward(reader, writer):
            server_reader, server_writer = await asyncio.open_connection(host, int(port))
            pipes.extend(
                (loop.create_task(pump(reader, server_writer)), loop.create_task(pump(server_reader, writer)))
            )
            sockets.extend((writer, server_writer))

        async def pump(source, sink):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()

        pipes: list[asyncio.Task[None]] = []
        sockets: list[asyncio.StreamWriter] = []
        relay = await asyncio.start_server(forward, "127.0.0.1", 0)
        relay_port = relay.sockets[0].getsockname()[1]
        async with open_channel(f"127.0.0.1:{relay_port}") as channel:
            await live_session(transcription_pb2_grpc.TranscriptionStub(channel))
            assert target.num_free_slots == MAX_SESSIONS - 1
            relay.close()
            for pipe in pipes:
                pipe.cancel()
            for writer in sockets:
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, 0 s: sends a reset
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            await all_free(target, draft)
        await asyncio.gather(*pipes, return_exceptions=True)
        assert finals(await stream(draft, recording(1.0))) == expected_finals(target_alone(1.0))


async def test_a_client_that_cancels_while_its_session_opens():
    """The target is busy: the session opens only after its client has cancelled."""
    model = Gated()
    async with target_server(model) as target, draft_server(target.address) as draft:
        busy = asyncio.create_task(stream(draft, recording(1.0), mode="MODE_TARGET_ONLY"))
        await eventually(model.is_there.is_set)
        hasty = draft.stub.StreamingRecognize()
        await hasty.write(streaming_config())
        await eventually(lambda: target.server.calls.num_open == 3)  # one is the stream that both share
        hasty.cancel()
        await eventually(lambda: target.server.calls.num_open == 2)
        model.gate.set()
        assert finals(await busy) == expected_finals(target_alone(1.0))
        await all_free(target, draft)


class FailingDraft(ScriptedModel):
    """A draft that fails for good after some steps or encodings."""

    def __init__(self, num_slots: int, *, good_steps: int = 10**9, good_windows: int = 10**9) -> None:
        super().__init__(num_slots, error_rate=0.2)
        self._good_steps = good_steps
        self._good_windows = good_windows

    def score(self, rows):
        self._good_steps -= 1
        if self._good_steps < 0:
            raise RuntimeError("out of memory")
        return super().score(rows)

    def encode(self, slot, recording, start_frame):
        self._good_windows -= 1
        if self._good_windows < 0:
            raise RuntimeError("out of memory")
        super().encode(slot, recording, start_frame)


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("good", [{"good_steps": n} for n in (0, 1, 4, 17)] + [{"good_windows": 1}])
async def test_a_failed_draft_costs_speed_and_no_text(mode, good, caplog):
    alone = target_alone(65.0)
    async with target_server() as target:
        model = FailingDraft(MAX_SESSIONS, **good)
        async with draft_server(target.address, model) as draft:
            responses = await stream(draft, recording(65.0), mode=mode, gamma=3)
            assert finals(responses) == expected_finals(alone)
            check_statistics(responses[-1].statistics, alone)
            await all_free(target, draft)
    if mode != "MODE_FULL":  # there the target may end before the draft begins
        assert "draft failed" in caplog.messages
        assert responses[-1].statistics.num_self_decoded > 0


class EndsEarly(verification_pb2_grpc.VerificationServicer):
    """A target that ends each session as soon as it has begun."""

    _is_finished = True

    def __init__(self, target: grpc.aio.Channel) -> None:
        self._stub = verification_pb2_grpc.VerificationStub(target)

    async def Locate(self, request, context):
        return await self._stub.Locate(request)

    async def Describe(self, request, context):
        return await self._stub.Describe(request)

    async def Verify(self, requests, context):
        yield verification_pb2.VerifyResponse(
            welcome=verification_pb2.Welcome(limits=codec.limits_to_proto(Limits()))
        )

    async def Share(self, requests, context):
        event = verification_pb2.SharedEvent(number=1, is_finished=True)
        yield verification_pb2.ShareResponse(events=[event] * self._is_finished)
        await asyncio.Event().wait()


async def test_a_session_that_its_target_ends_early_is_an_error():
    """A stream that ended without an error would return half of the text."""
    async with target_server() as target, open_channel(target.address) as channel:
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, EndsEarly(channel))
        server = await start_server({"specwhisper.wire.v1.Verification": add}, ServingOptions())
        async with draft_server(server.address) as draft:
            error = await error_of(draft.stub.StreamingRecognize(endless_audio()))
            await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
        await server.stop(drain_timeout_s=0)
    assert type(error) is TargetUnavailable
    assert str(error) == f"Target {server.address} ended the session before its audio."


class Silent(EndsEarly):
    """A target with an open connection that sends no welcome, or nothing after it."""

    _is_finished = False

    def __init__(self, target: grpc.aio.Channel, *, welcomes: bool) -> None:
        super().__init__(target)
        self._welcomes = welcomes

    async def Verify(self, requests, context):
        if self._welcomes:
            async for response in super().Verify(requests, context):
                yield response
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("welcomes", "sentence"),
    [(False, "has not accepted a session within"), (True, "has sent nothing for")],
)
async def test_a_silent_target_is_lost(welcomes, sentence, monkeypatch):
    monkeypatch.setattr(grpc_target_stream, "WELCOME_S", 0.2)
    monkeypatch.setattr(grpc_target_stream, "SILENCE_S", 0.2)
    async with target_server() as target, open_channel(target.address) as channel:
        silent = Silent(channel, welcomes=welcomes)
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, silent)
        server = await start_server({"specwhisper.wire.v1.Verification": add}, ServingOptions())
        async with draft_server(server.address, resume_timeout_s=0.05) as draft:
            error = await error_of(draft.stub.StreamingRecognize(endless_audio()))
            await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
        await server.stop(drain_timeout_s=0)
    assert type(error) is TargetUnavailable
    assert f"Target {server.address} {sentence}" in str(error)


async def endless_audio():
    yield streaming_config()
    await asyncio.Event().wait()


async def test_a_client_that_does_not_read_delays_no_other_session():
    """Its own session may wait for it; a session beside it does not."""
    async with running_pair() as (target, draft):
        options = [("grpc.http2.bdp_probe", 0)]
        async with grpc.aio.insecure_channel(draft.address, options=options) as channel:
            deaf = transcription_pb2_grpc.TranscriptionStub(channel).StreamingRecognize()
            await deaf.write(streaming_config(interim=True))
            for request in audio_requests(recording(65.0)):
                await deaf.write(request)
            assert finals(await stream(draft, recording(33.0))) == expected_finals(target_alone(33.0))
            deaf.cancel()
        await all_free(target, draft)
