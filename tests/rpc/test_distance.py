"""A target that seems to be further away: later answers, and the same text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from experiments.common.models.speech import EnergyVad, spoken_utterances, talk
from specwhisper.errors import InvalidRequest, TargetUnavailable
from specwhisper.rpc import backoff
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import AudioChunk, Candidates, Limits, Mode, WindowOpened
from specwhisper_draft_server.link.latency_injection import DelayedTargetStream
from specwhisper_draft_server.requests import MAX_ADDED_LATENCY_MS
from tests.rpc.services import all_free, audio_requests, error_of, is_one_sentence
from tests.rpc.speaking import Listener, config, live_client, speaking_pair

ADDED_MS = 40
SHORT = talk(((0.2, 1.6),), 2.5)


@pytest.fixture(autouse=True)
def hearing(monkeypatch):
    monkeypatch.setattr("specwhisper_draft_server.voice_activity._model", EnergyVad)
    monkeypatch.setattr(backoff, "MOST_S", 0.02)


@pytest.mark.parametrize("mode", list(Mode)[:4])
async def test_distance_changes_the_round_trip_and_no_word(mode):
    async with speaking_pair() as (target, draft):
        async with live_client(draft.address, mode=mode, added_latency_ms=ADDED_MS) as client:
            listener = Listener(client)
            await client.send(SHORT)
            await client.finish()
            await listener.whole()
        listener.check(spoken_utterances(SHORT))
        assert client.statistics.min_round_trip_ns > ADDED_MS * 1e6
        await all_free(target, draft)


async def test_a_client_that_leaves_a_distant_target_frees_it():
    async with speaking_pair() as (target, draft):
        async with live_client(draft.address, added_latency_ms=MAX_ADDED_LATENCY_MS) as client:
            await client.send(SHORT)
            async for update in client:
                if update.speech is not None:
                    break
        await all_free(target, draft)


@pytest.mark.parametrize("added_latency_ms", [MAX_ADDED_LATENCY_MS + 1, 2**31 - 1])
async def test_a_distance_out_of_bounds_is_refused(added_latency_ms):
    request = config()
    request.streaming_config.added_latency_ms = added_latency_ms
    async with speaking_pair() as (target, draft):
        requests = iter([request, *audio_requests(SHORT)])
        error = await error_of(with_true_status(draft.stub.StreamingRecognize(requests)))
        assert type(error) is InvalidRequest and is_one_sentence(error)
        assert "added_latency_ms" in str(error)
        await all_free(target, draft)


class Near:
    """A session on a target that notes what reaches it, and says what it is told to."""

    limits = Limits()
    min_round_trip_ns = 0

    def __init__(self, says: list[WindowOpened | Exception], fails_at: Exception | None = None) -> None:
        self._says = says
        self._fails_at = fails_at
        self.heard: list[AudioChunk | Candidates] = []

    def propose(self, block: Candidates) -> None:
        self.heard.append(block)

    async def send_audio(self, chunk: AudioChunk) -> None:
        if self._fails_at is not None:
            raise self._fails_at
        self.heard.append(chunk)

    async def events(self) -> AsyncIterator[WindowOpened]:
        for each in self._says:
            if isinstance(each, Exception):
                raise each
            yield each
        if self._fails_at is not None:
            await asyncio.Event().wait()


async def test_what_goes_up_arrives_in_order_and_what_comes_down_ends():
    near = Near([])
    distant = DelayedTargetStream(near, 2)
    sent = [AudioChunk(0, b"ab"), Candidates(1, 0, 0, (1,)), AudioChunk(1, b"cd", is_last=True)]
    arrived = asyncio.Event()

    async def events() -> AsyncIterator[WindowOpened]:
        while len(near.heard) < len(sent):
            await asyncio.sleep(0)
        arrived.set()
        return
        yield

    near.events = events
    for message in sent:
        if isinstance(message, AudioChunk):
            await distant.send_audio(message)
        else:
            distant.propose(message)
    assert near.heard == [], "it is on its way"
    assert [event async for event in distant.events()] == []
    assert arrived.is_set() and near.heard == sent


@pytest.mark.parametrize("is_up", [False, True])
async def test_an_error_comes_through_in_either_direction(is_up):
    error = TargetUnavailable("It is gone.")
    near = Near([], error) if is_up else Near([error])
    distant = DelayedTargetStream(near, 2)
    await distant.send_audio(AudioChunk(0, b"ab"))
    with pytest.raises(TargetUnavailable, match="It is gone"):
        async for _ in distant.events():
            pass


def test_a_round_trip_that_was_not_measured_stays_unknown():
    near = Near([])
    assert DelayedTargetStream(near, 100).min_round_trip_ns == 0
    near.min_round_trip_ns = 5
    assert DelayedTargetStream(near, 100).min_round_trip_ns == 100_000_005
