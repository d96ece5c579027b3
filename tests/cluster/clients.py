"""Clients of targets under Ray, and the text that each of them must get."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import grpc.aio
import numpy as np

from experiments.common.inline_pair import InlinePair
from specwhisper.live import LiveOptions
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import verification_pb2 as internal
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_client.codec import config_to_proto, segments_from_proto
from specwhisper_client.streaming import StreamingClient
from tests.cluster.conftest import MAX_SESSIONS, START_TIMEOUT_S, Targets, until
from tests.rpc.services import Draft, audio_requests, draft_server, target_server
from tests.rpc.speaking import Listener

OPTIONS = DecodingOptions.greedy(language="en")
LENGTH_S = 70
UTTERANCES = ((1.0, 4.2), (6.0, 6.6), (8.0, 12.4))  # of a talk: begin and end in seconds
TALK_S = 14
FIRST_PART_S = 10  # of a talk: it ends within the last utterance


@cache
def recording(seed: int) -> bytes:
    """Return PCM of noise."""
    return np.random.default_rng(seed).integers(-3_000, 3_000, LENGTH_S * 16_000).astype("<i2").tobytes()


@cache
def talk() -> bytes:
    """Return PCM of a talk: noise instead of speech, since random weights need no words, and silence."""
    audio = bytearray(TALK_S * SAMPLE_RATE * 2)
    for seed, (begin_s, end_s) in enumerate(UTTERANCES):
        begin, end = (round(at_s * SAMPLE_RATE) * 2 for at_s in (begin_s, end_s))
        audio[begin:end] = recording(seed)[: end - begin]
    return bytes(audio)


@cache
def target_alone(folder: Path) -> InlinePair:
    """Return the target without a draft, in this process."""
    return InlinePair(WhisperModel(load_checkpoint(str(folder)), 1))


def as_tuples(segments) -> list[tuple]:
    """Return what must be equal of segments."""
    return [(s.start_s, s.end_s, s.tokens, s.text) for s in segments]


def expected(checkpoints, seed: int) -> list[tuple]:
    """Return the segments that the target alone writes of a recording."""
    [transcription] = target_alone(checkpoints[0]).transcribe([recording(seed)], OPTIONS)
    return as_tuples(transcription.segments)


class Client:
    """Streams a recording in two halves."""

    def __init__(self, draft: Draft, seed: int) -> None:
        self.seed = seed
        self.draft = draft
        self._results: list[pb.SpeechRecognitionResult] = []

    async def start(self) -> None:
        """Send the first half, and wait for the first final text."""
        recognition = config_to_proto(OPTIONS, Mode.FULL, 4, is_container=False)
        config = pb.StreamingRecognitionConfig(config=recognition, interim_results=True)
        self._call = with_true_status(self.draft.stub.StreamingRecognize())
        await self._call.write(pb.StreamingRecognizeRequest(streaming_config=config))
        half = len(recording(self.seed)) // 2
        for request in audio_requests(recording(self.seed)[:half]):
            await self._call.write(request)
        while not self._results:
            self._results += [r for r in (await self._call.read()).results if r.is_final]

    async def finish(self) -> list[tuple]:
        """Send the second half, and return all segments."""
        await asyncio.gather(self._send_second_half(), self._read_results())
        assert await self._call.code() is grpc.StatusCode.OK
        return as_tuples(segments_from_proto(self._results))

    async def _send_second_half(self) -> None:
        for request in audio_requests(recording(self.seed)[len(recording(self.seed)) // 2 :]):
            await self._call.write(request)
        await self._call.done_writing()

    async def _read_results(self) -> None:
        while (response := await self._call.read()) is not grpc.aio.EOF:
            self._results += [r for r in response.results if r.is_final]


class Speaker:
    """Streams a talk live, in two parts; the first ends within the last utterance.

    Steps are so long that utterances are decoded only where they pause and end: with random weights, which
    write other text for every length, final text then depends on the audio alone.
    """

    def __init__(self, draft: Draft) -> None:
        long_steps = LiveOptions(step_ms=10_000)
        self._client = StreamingClient(
            draft.address, OPTIONS, live=long_steps, mode=Mode.FULL, reconnect_s=0.0
        )
        self._listener = Listener(self._client)

    async def start(self) -> None:
        """Send the first part, and wait for the text of the complete utterances."""
        await self._client.send(talk()[: FIRST_PART_S * SAMPLE_RATE * 2])
        await until(lambda: self._complete_utterances() == [1, 2])

    async def finish(self) -> list[tuple]:
        """Send the rest, and return all final segments in the order of their arrival."""
        await self._client.send(talk()[FIRST_PART_S * SAMPLE_RATE * 2 :])
        await self._client.finish()
        await self._listener.whole(START_TIMEOUT_S)
        assert self._client.num_reconnects == 0
        await self._client.__aexit__()
        assert self._complete_utterances() == [1, 2, 3]
        segments = self._listener.segments
        assert {segment.utterance for segment in segments if segment.tokens} == {1, 2, 3}, "each has text"
        assert [s.start_s for s in segments] == sorted(s.start_s for s in segments)
        # Without times: a resumed session cuts its audio into other frames of 32 ms, so that utterances may
        # end a frame earlier or later.
        return [(segment.utterance, segment.tokens, segment.text) for segment in segments]

    def _complete_utterances(self) -> list[int]:
        return [segment.utterance for segment in self._listener.segments if segment.is_utterance_end]


async def undisturbed_talk(checkpoints) -> list[tuple]:
    """Return what a speaker gets from a target and a draft server in this process."""
    target, draft = (load_checkpoint(str(folder)) for folder in checkpoints)
    async with (
        target_server(checkpoint=target, threads=1) as alone,
        draft_server(alone.address, None, draft) as server,
    ):
        speaker = Speaker(server)
        await speaker.start()
        return await speaker.finish()


@asynccontextmanager
async def started_clients(targets: Targets, checkpoints, number: int) -> AsyncIterator[list[Client]]:
    """Yield clients that have sent their first halves, on one draft server."""
    draft = load_checkpoint(str(checkpoints[1]))
    # They send nothing while targets start, which takes long on a busy machine.
    async with draft_server(targets.locator, None, draft, idle_timeout_s=2 * START_TIMEOUT_S) as server:
        clients = [Client(server, seed) for seed in range(number)]
        await asyncio.gather(*(client.start() for client in clients))
        yield clients


async def finish_and_check(checkpoints, clients: list[Client]) -> None:
    """Finish all clients; their texts must be the target's own."""
    texts = await asyncio.gather(*(client.finish() for client in clients))
    assert texts == [expected(checkpoints, client.seed) for client in clients]


async def open_sessions(targets: Targets) -> dict[str, int]:
    """Return the number of open sessions of each target, by address."""
    number, found = targets.num_running, {}
    assert number
    async with open_channel(targets.locator) as channel:
        locator = verification_pb2_grpc.VerificationStub(channel)
        while len(found) < number:
            address = (await locator.Locate(internal.LocateRequest())).address
            async with open_channel(address) as direct:
                stub = verification_pb2_grpc.VerificationStub(direct)
                free_slots = (await stub.Locate(internal.LocateRequest())).free_slots
                found[address] = MAX_SESSIONS - free_slots
    return found
