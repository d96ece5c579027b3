"""Calls whose client sends or reads nothing end with an error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import grpc.aio
import pytest
from riva.client.proto import riva_asr_pb2 as riva_pb
from riva.client.proto.riva_asr_pb2_grpc import RivaSpeechRecognitionStub

from experiments.common.models.speech import SPANS, spoken_utterances, talk
from specwhisper.errors import IdleClient, SlowReader
from specwhisper.rpc import serving
from specwhisper.rpc.calls import CallInterceptor
from specwhisper.rpc.channels import with_true_status
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from tests.rpc.riva_clients import live_config
from tests.rpc.services import (
    MAX_SESSIONS,
    PROMPTLY_S,
    RATE,
    SMALL_BUFFERS,
    Draft,
    Target,
    all_free,
    audio_requests,
    check_error,
    eventually,
)
from tests.rpc.speaking import Listener, config, final_results, live_client, speaking_pair, texts_of

LIMIT_S = 0.5
pytestmark = pytest.mark.usefixtures("energy_vad")


def open_utterance() -> bytes:
    """Return the audio of two utterances, the second without an end."""
    return talk()[: round((SPANS[1][1] + 0.1) * RATE) * 2]


async def answers(call, status=grpc.StatusCode.DEADLINE_EXCEEDED) -> tuple[list, Exception]:
    """Return all responses, and the error after them."""
    responses = []
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        while (response := await call.read()) is not grpc.aio.EOF:
            responses.append(response)
    assert ended.value.code() is status
    return responses, error_from_rpc(ended.value, "the server")


@pytest.mark.parametrize("has_more", [True, False])
async def test_a_streaming_client_continues_if_it_has_more_to_send_and_else_ends(has_more):
    async with speaking_pair(idle_timeout_s=LIMIT_S) as (target, draft), live_client(draft.address) as client:
        listener = Listener(client)
        said = len(open_utterance())
        await client.send(talk()[:said])
        await eventually(lambda: sum(segment.is_utterance_end for segment in listener.segments) == 2)
        await all_free(target, draft)
        await listener.end(talk()[said:] if has_more else b"")
        texts, spoken = texts_of(listener.segments), spoken_utterances(talk())
        assert texts[1] == spoken[1] and texts.get(3) == (spoken[3] if has_more else None)
        assert client.num_reconnects == 0
        if has_more:
            listener.check(texts)
            assert client.received_s == len(talk()) / 2 / RATE
        await all_free(target, draft)


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (TranscriptionStub, []),
        (TranscriptionStub, [config()]),
        (RivaSpeechRecognitionStub, [riva_pb.StreamingRecognizeRequest(streaming_config=live_config())]),
    ],
    ids=["nothing", "no audio", "Riva"],
)
async def test_a_client_that_sends_nothing(kind, sent):
    async with speaking_pair(idle_timeout_s=LIMIT_S) as (target, draft):
        call = with_true_status(kind(draft.channel).StreamingRecognize())
        for request in sent:
            await call.write(request)
        responses, error = await answers(call)
        check_error(error, IdleClient, "has sent nothing for 0.5 s")
        if kind is TranscriptionStub:
            assert not final_results(responses)
        await all_free(target, draft)


@asynccontextmanager
async def stalled(target: Target, draft: Draft) -> AsyncIterator[Any]:
    """Yield a call whose client sends audio and reads no response."""

    async def send() -> None:
        for request in audio_requests(talk(), 3_200):
            await call.write(request)

    async with grpc.aio.insecure_channel(draft.address, options=SMALL_BUFFERS) as channel:
        call = with_true_status(TranscriptionStub(channel).StreamingRecognize())
        await call.write(config(interim=True))
        assert (await call.read()).HasField("model")
        speaking = asyncio.create_task(send())
        await eventually(lambda: target.num_free_slots < MAX_SESSIONS)
        yield call
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)


async def test_a_client_that_reads_no_response_loses_its_session():
    """Its call ends at once; the error follows the responses that it has not read."""
    async with speaking_pair(idle_timeout_s=LIMIT_S) as (target, draft), stalled(target, draft) as call:
        await all_free(target, draft)
        await eventually(lambda: draft.server.calls.num_open == 0, within_s=PROMPTLY_S)
        responses, error = await answers(call, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert responses
        check_error(error, SlowReader, "No response was read for 0.5 s")


async def test_a_client_that_read_no_response_may_cancel():
    async with speaking_pair(idle_timeout_s=LIMIT_S) as (target, draft):
        num_running: list[int] = []
        for _ in range(2):  # the first session also starts tasks that stay, such as the watchdog
            async with stalled(target, draft) as call:
                await all_free(target, draft)
                call.cancel()
            if num_running:
                await eventually(lambda: len(asyncio.all_tasks()) <= num_running[0], within_s=PROMPTLY_S)
            num_running.append(len(asyncio.all_tasks()))


async def test_a_streaming_client_outlives_its_calls(monkeypatch):
    """Each call ends after a while; the next one continues after the last final word."""
    interceptors = []

    class Recorded(CallInterceptor):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            interceptors.append(self)

    monkeypatch.setattr(serving, "CallInterceptor", Recorded)
    async with (
        speaking_pair(session_timeout_s=0.3) as (target, draft),
        live_client(draft.address) as client,
    ):
        listener = Listener(client)
        for number, start in enumerate(range(0, len(talk()), 4 * 2 * RATE)):
            await client.send(talk()[start : start + 4 * 2 * RATE])
            await eventually(lambda number=number: client.num_reconnects > number)
        for interceptor in interceptors:
            interceptor._max_call_s = inf  # a busy machine may take longer for the last words
        await listener.end()
        listener.check(spoken_utterances(talk()))
        await all_free(target, draft)
