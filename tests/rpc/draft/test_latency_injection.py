"""Latency injection delays messages and changes no text; it must be allowed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from experiments.common.models.speech import SPOKEN, spoken_utterances, talk
from specwhisper.errors import InvalidRequest, TargetUnavailable
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import (
    LIVE_MODES,
    AudioChunk,
    Limits,
    WindowOpened,
)
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.link.latency_injection import DelayedTargetStream
from specwhisper_draft_server.requests import MAX_ADDED_LATENCY_MS
from specwhisper_draft_server.transcriber import TargetDescription
from tests.rpc.services import all_free, audio_requests, error_of, is_one_sentence
from tests.rpc.speaking import Listener, config, live_client, speaking_pair

ADDED_MS = 40
SHORT = talk(((0.2, 1.6),), 2.5)
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


@pytest.mark.parametrize("mode", LIVE_MODES)
async def test_the_round_trip_grows_and_the_text_stays(mode):
    async with speaking_pair(allow_latency_injection=True) as (target, draft):
        assert (await draft.stub.GetModel(pb.GetModelRequest())).allows_latency_injection
        async with live_client(draft.address, mode=mode, added_latency_ms=ADDED_MS) as client:
            listener = Listener(client)
            await listener.end(SHORT)
        listener.check(spoken_utterances(SHORT))
        assert client.statistics.min_round_trip_ns > ADDED_MS * 1e6
        await all_free(target, draft)


async def test_a_client_that_leaves_frees_a_delayed_session():
    async with speaking_pair(allow_latency_injection=True) as (target, draft):
        async with live_client(draft.address, added_latency_ms=MAX_ADDED_LATENCY_MS) as client:
            await client.send(SHORT)
            async for update in client:
                if update.speech is not None:
                    break
        await all_free(target, draft)


async def refusal(added_latency_ms: int, **settings) -> Exception:
    """Return the error of a stream that requests latency."""
    request = config()
    request.streaming_config.added_latency_ms = added_latency_ms
    async with speaking_pair(**settings) as (target, draft):
        requests = iter([request, *audio_requests(SHORT)])
        error = await error_of(with_true_status(draft.stub.StreamingRecognize(requests)))
        assert type(error) is InvalidRequest and is_one_sentence(error)
        await all_free(target, draft)
    return error


@pytest.mark.parametrize("added_latency_ms", [MAX_ADDED_LATENCY_MS + 1, 2**31 - 1])
async def test_latency_out_of_bounds_is_refused(added_latency_ms):
    assert "added_latency_ms" in str(await refusal(added_latency_ms, allow_latency_injection=True))


async def test_a_server_refuses_latency_unless_its_flag_allows_it():
    assert "start the draft server with --allow-latency-injection" in str(await refusal(ADDED_MS))


class Near:
    """A target stream that is lost as it takes audio, or as it yields events."""

    address, limits, going_away = "near", Limits(), asyncio.Event()
    target = TargetDescription("near", "digest", SPOKEN, 80, limits)
    min_round_trip_ns = 0

    def __init__(self, *, takes_audio: bool) -> None:
        self._takes_audio = takes_audio

    def leave(self) -> None: ...

    async def send_audio(self, chunk: AudioChunk) -> None:
        if not self._takes_audio:
            raise TargetUnavailable("It is gone.")

    async def events(self) -> AsyncIterator[WindowOpened]:
        if self._takes_audio:
            raise TargetUnavailable("It is gone.")
        await asyncio.Event().wait()
        yield


@pytest.mark.parametrize("is_up", [False, True])
async def test_an_error_of_either_direction_ends_the_stream(is_up):
    delayed = DelayedTargetStream(Near(takes_audio=not is_up), 2)
    await delayed.send_audio(AudioChunk(0, b"ab"))
    with pytest.raises(TargetUnavailable, match="It is gone"):
        async for _ in delayed.events():
            pass
