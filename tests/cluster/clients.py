"""Clients of targets under Ray, and the text that each of them has to get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import grpc.aio
import numpy as np

from specwhisper.engine.one_process import OneProcess
from specwhisper.live import LiveOptions
from specwhisper.model.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import verification_pb2 as internal
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_client.messages import config_to_proto, segments_from_proto
from specwhisper_client.streaming import StreamingClient
from tests.cluster.conftest import MAX_SESSIONS
from tests.rpc.services import Draft, audio_requests, draft_server, eventually, target_server
from tests.rpc.speaking import Listener

OPTIONS = DecodingOptions(language="en")
LENGTH_S = 70
SPANS = ((1.0, 4.2), (6.0, 6.6), (8.0, 12.4))  # of a talk: its utterances
TALK_S = 14
BEGUN_S = 10  # of it: within the last one
WAIT_S = 120.0  # for a target to be started on a machine that does other things


@cache
def pcm(seed: int) -> bytes:
    return np.random.default_rng(seed).integers(-3_000, 3_000, LENGTH_S * 16_000).astype("<i2").tobytes()


@cache
def talk() -> bytes:
    """Noise within some spans, which random weights make more of than of words, and silence between them."""
    audio = bytearray(TALK_S * SAMPLE_RATE * 2)
    for seed, (begin_s, end_s) in enumerate(SPANS):
        begin, end = (round(at_s * SAMPLE_RATE) * 2 for at_s in (begin_s, end_s))
        audio[begin:end] = pcm(seed)[: end - begin]
    return bytes(audio)


@cache
def target_alone(folder: Path) -> OneProcess:
    return OneProcess(WhisperModel(load_checkpoint(str(folder)), 1))


class Client:
    """Sends half of a recording, and the rest when it is told to."""

    def __init__(self, draft: Draft, seed: int) -> None:
        self.seed = seed
        self.draft = draft
        self._results: list[pb.SpeechRecognitionResult] = []

    async def begin(self) -> None:
        """Send half of it, and wait for the first words."""
        asked = config_to_proto(OPTIONS, Mode.FULL, 4, is_container=False)
        config = pb.StreamingRecognitionConfig(config=asked, interim_results=True)
        self._call = with_true_status(self.draft.stub.StreamingRecognize())
        await self._call.write(pb.StreamingRecognizeRequest(streaming_config=config))
        half = len(pcm(self.seed)) // 2
        for request in audio_requests(pcm(self.seed)[:half]):
            await self._call.write(request)
        while not self._results:
            self._results += [r for r in (await self._call.read()).results if r.is_final]

    async def end(self) -> list[tuple]:
        """Send the rest, and give all the text."""
        await asyncio.gather(self._send_the_rest(), self._hear_the_rest())
        assert await self._call.code() is grpc.StatusCode.OK
        return written(segments_from_proto(self._results))

    async def _send_the_rest(self) -> None:
        for request in audio_requests(pcm(self.seed)[len(pcm(self.seed)) // 2 :]):
            await self._call.write(request)
        await self._call.done_writing()

    async def _hear_the_rest(self) -> None:
        while (response := await self._call.read()) is not grpc.aio.EOF:
            self._results += [r for r in response.results if r.is_final]


class Speaker:
    """Says a talk as far as into its last utterance, and the rest when it is told to.

    Utterances are decoded where they pause and where they end, and not in between: their final text depends
    on their sound alone, also with weights that write something else of every longer clip.
    """

    def __init__(self, draft: Draft) -> None:
        once = LiveOptions(step_ms=10_000)
        self._client = StreamingClient(draft.address, OPTIONS, live=once, mode=Mode.FULL, reconnect_s=0.0)
        self._listener = Listener(self._client)

    async def begin(self) -> None:
        """Begin the last utterance, and wait for the others' text."""
        await self._client.send(talk()[: BEGUN_S * SAMPLE_RATE * 2])
        await eventually(lambda: self._utterances() == [1, 2], within_s=WAIT_S)

    async def end(self) -> list[tuple]:
        """Say the rest, and give all that was told as final, in its order."""
        await self._client.send(talk()[BEGUN_S * SAMPLE_RATE * 2 :])
        await self._client.finish()
        await self._listener.whole(WAIT_S)
        assert self._client.num_reconnects == 0
        await self._client.__aexit__()
        assert self._utterances() == [1, 2, 3]
        said = self._listener.segments
        assert {segment.utterance for segment in said if segment.tokens} == {1, 2, 3}, "there is text to lose"
        assert [s.start_s for s in said] == sorted(s.start_s for s in said)
        # Not their times: whoever goes on listens in other frames, of 32 ms, and may hear another end.
        return [(segment.utterance, segment.tokens, segment.text) for segment in said]

    def _utterances(self) -> list[int]:
        """Give those that are complete, as they were told."""
        return [segment.utterance for segment in self._listener.segments if segment.is_utterance_end]


async def said_alone(checkpoints) -> list[tuple]:
    """Give what a speaker is told whom nothing disturbs, by a target and a draft server in this process."""
    target, draft = (load_checkpoint(str(folder)) for folder in checkpoints)
    async with (
        target_server(checkpoint=target, threads=1) as alone,
        draft_server(alone.address, None, draft) as server,
    ):
        speaker = Speaker(server)
        await speaker.begin()
        return await speaker.end()


def written(segments) -> list[tuple]:
    return [(s.start_s, s.end_s, s.tokens, s.text) for s in segments]


def expected(checkpoints, client: Client) -> list[tuple]:
    return written(target_alone(checkpoints[0]).transcribe([pcm(client.seed)], OPTIONS)[0].segments)


@asynccontextmanager
async def clients_of(cluster, checkpoints, number: int) -> AsyncIterator[list[Client]]:
    """Have clients whose sessions are half way."""
    draft = load_checkpoint(str(checkpoints[1]))
    # They say nothing while targets are started, which takes long where the machine does other things.
    async with draft_server(cluster.locator, None, draft, idle_timeout_s=2 * WAIT_S) as server:
        clients = [Client(server, seed) for seed in range(number)]
        await asyncio.gather(*(client.begin() for client in clients))
        yield clients


async def sessions_at(cluster) -> dict[str, int]:
    """Ask the locator for targets until it has named all, and each of them how many sessions it has."""
    found: dict[str, int] = {}
    async with open_channel(cluster.locator) as channel:
        locator = verification_pb2_grpc.VerificationStub(channel)
        while len(found) < cluster.num_running:
            address = (await locator.Locate(internal.LocateRequest())).address
            async with open_channel(address) as direct:
                told = await verification_pb2_grpc.VerificationStub(direct).Locate(internal.LocateRequest())
                found[address] = MAX_SESSIONS - told.free_slots
    return found


async def check_all(checkpoints, clients: list[Client]) -> None:
    texts = await asyncio.gather(*(client.end() for client in clients))
    assert texts == [expected(checkpoints, client) for client in clients]


async def running(cluster, number: int) -> None:
    await eventually(lambda: cluster.num_running == number, within_s=WAIT_S)
