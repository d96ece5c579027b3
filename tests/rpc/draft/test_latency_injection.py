"""Latency injection delays messages and changes no text; it must be allowed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from experiments.common.models.speech import SPOKEN, spoken_utterances, talk
from specwhisper.errors import InvalidRequest, TargetUnavailable
from specwhisper.types import LIVE_MODES, AudioChunk, Limits, WindowOpened
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.link.latency_injection import DelayedTargetStream
from specwhisper_draft_server.requests import MAX_ADDED_LATENCY_MS
from specwhisper_draft_server.transcriber import TargetDescription
from tests.rpc.services import all_free, audio_requests, is_one_sentence, refusal
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


@pytest.mark.parametrize(
    ("added_latency_ms", "is_allowed", "words"),
    [
        (MAX_ADDED_LATENCY_MS + 1, True, "added_latency_ms"),
        (ADDED_MS, False, "start the draft server with --allow-latency-injection"),
    ],
    ids=["out of bounds", "without the server's flag"],
)
async def test_latency_is_refused(added_latency_ms, is_allowed, words):
    request = config()
    request.streaming_config.added_latency_ms = added_latency_ms
    async with speaking_pair(allow_latency_injection=is_allowed) as (target, draft):
        error = await refusal(draft, request, *audio_requests(SHORT))
        assert type(error) is InvalidRequest and is_one_sentence(error)
        assert words in str(error)
        await all_free(target, draft)


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
