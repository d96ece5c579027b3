"""Clients of targets under Ray, and the text that each of them must get."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import grpc.aio
import numpy as np

from experiments.common.inline_pair import InlinePair
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.types import Mode
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import verification_pb2 as internal
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_client.codec import config_to_proto, segments_from_proto
from tests.cluster.conftest import MAX_SESSIONS, START_TIMEOUT_S, Targets
from tests.rpc.services import Draft, audio_requests, draft_server

OPTIONS = DecodingOptions.greedy(language="en")
LENGTH_S = 70


@cache
def recording(seed: int) -> bytes:
    """Return PCM of noise."""
    return np.random.default_rng(seed).integers(-3_000, 3_000, LENGTH_S * 16_000).astype("<i2").tobytes()


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
