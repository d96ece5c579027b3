"""When clients cancel in any state, slots, limits and tasks are freed at once."""

import asyncio
import threading
from collections.abc import Iterator

import grpc.aio
import pytest

from experiments.common.models.scripted import ScriptedModel
from experiments.faults import silence
from specwhisper.audio.decode import decode_file
from specwhisper.rpc.channels import with_true_status
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from tests.rpc.gated import Gated
from tests.rpc.services import (
    MAX_SESSIONS,
    PROMPTLY_S,
    SMALL_BUFFERS,
    all_free,
    audio_requests,
    check_text,
    draft_server,
    eventually,
    expected_finals,
    finals,
    recording,
    stream,
    streaming_config,
    target_alone,
    target_server,
)


async def send_audio(call) -> None:
    for request in audio_requests(recording(65.0)):
        await call.write(request)


@pytest.mark.parametrize("server", ["target", "draft"])
@pytest.mark.parametrize("where", ["encode", "score"])
async def test_a_client_that_cancels_while_a_model_runs_for_it(server, where):
    gated = Gated(where, error_rate=0.2 if server == "draft" else 0.0)
    target_model = gated if server == "target" else ScriptedModel(MAX_SESSIONS)
    draft_model = gated if server == "draft" else ScriptedModel(MAX_SESSIONS, error_rate=0.2)
    async with target_server(target_model) as target, draft_server(target.address, draft_model) as draft:
        gated.gate.set()
        await check_text(draft, 1.0)
        tasks = len(asyncio.all_tasks())
        gated.gate.clear()
        gated.is_there.clear()
        call = draft.stub.StreamingRecognize()
        await call.write(streaming_config(mode="MODE_SYNC"))
        sending = asyncio.create_task(send_audio(call))
        await eventually(gated.is_there.is_set)
        call.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        # Calls and session limits are freed at once; a slot in use waits for the model.
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
        await eventually(
            lambda: draft.server.calls.num_open == target.server.calls.num_open == 0, within_s=PROMPTLY_S
        )
        gated.gate.set()
        await all_free(target, draft)
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks, within_s=PROMPTLY_S)
        await check_text(draft, 1.0)


async def test_clients_that_cancel_while_they_wait_for_the_engine():
    """The engine is in a forward pass: sessions open and close only after it."""
    gated = Gated("score")
    async with target_server(gated) as target, draft_server(target.address) as draft:
        busy = asyncio.create_task(stream(draft, recording(1.0), mode="MODE_TARGET_ONLY"))
        await eventually(gated.is_there.is_set)
        waiting = [draft.stub.StreamingRecognize() for _ in range(MAX_SESSIONS - 1)]
        for call in waiting:
            await call.write(streaming_config())
        await eventually(lambda: draft.service.num_sessions == MAX_SESSIONS)
        for call in waiting:
            call.cancel()
        await eventually(lambda: draft.service.num_sessions == 1, within_s=PROMPTLY_S)
        gated.gate.set()
        assert finals(await busy) == expected_finals(target_alone(1.0))
        await all_free(target, draft)


async def test_a_client_that_cancels_while_a_response_is_unread():
    async with (
        target_server() as target,
        draft_server(target.address) as draft,
        grpc.aio.insecure_channel(draft.address, options=SMALL_BUFFERS) as channel,
    ):
        call = with_true_status(TranscriptionStub(channel).StreamingRecognize())
        await call.write(streaming_config(interim=True))
        assert (await call.read()).HasField("model")
        sending = asyncio.create_task(send_audio(call))
        await eventually(lambda: target.num_free_slots < MAX_SESSIONS)
        call.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await all_free(target, draft)
        await eventually(lambda: draft.server.calls.num_open == 0, within_s=PROMPTLY_S)


class Scanned:
    """Decodes recordings; the second time it waits at a gate after the first block."""

    def __init__(self) -> None:
        self.is_there, self.gate = threading.Event(), threading.Event()
        self.num_opened = self.num_closed = self.num_scanned = 0

    def __call__(self, *recording) -> Iterator[bytes]:
        self.num_opened += 1
        is_scan = self.num_opened == 2
        try:
            for pcm in decode_file(*recording):
                self.num_scanned += is_scan
                if is_scan:
                    self.is_there.set()
                    self.gate.wait()
                yield pcm
        finally:
            self.num_closed += 1


async def test_a_client_that_cancels_during_its_scan_ends_it(monkeypatch):
    """Not only the call ends: the recording is decoded no further than the current block."""
    scanned = Scanned()
    monkeypatch.setattr("specwhisper_draft_server.requests.decode_file", scanned)
    async with target_server() as target, draft_server(target.address) as draft:
        call = draft.stub.Recognize(pb.RecognizeRequest(audio=silence.flac(3600)))
        await eventually(scanned.is_there.is_set)
        call.cancel()
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
        scanned.gate.set()
        await eventually(lambda: scanned.num_closed == 2, within_s=PROMPTLY_S)
        assert (scanned.num_opened, scanned.num_scanned) == (2, 1)
        await all_free(target, draft)
        await check_text(draft, 1.0)
