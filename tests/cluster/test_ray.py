"""Targets under Ray: sessions spread over them, outlive them, and do not notice that they change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import grpc.aio
import numpy as np
import pytest

from client.messages import config_to_proto, segments_from_proto
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from specwhisper.whisper.checkpoint import load_checkpoint
from specwhisper.whisper.model import WhisperModel
from specwhisper.whisper.one_process import OneProcess
from specwhisper.wire.channels import open_channel
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import verification_pb2 as internal
from specwhisper.wire.v1 import verification_pb2_grpc
from tests.cluster.conftest import MAX_SESSIONS, process_at
from tests.rpc.services import Draft, audio_requests, draft_server, eventually

pytestmark = [
    pytest.mark.timeout(400),
    # Ray does not see that the interval is set, where it wants it set.
    pytest.mark.filterwarnings("ignore:`look_back_period_s`:FutureWarning"),
]

OPTIONS = DecodingOptions(language="en")
LENGTH_S = 70
WAIT_S = 120.0  # for a target to be started on a machine that does other things


@cache
def pcm(seed: int) -> bytes:
    return np.random.default_rng(seed).integers(-3_000, 3_000, LENGTH_S * 16_000).astype("<i2").tobytes()


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
        self._call = self.draft.stub.StreamingRecognize()
        await self._call.write(pb.StreamingRecognizeRequest(streaming_config=config))
        half = len(pcm(self.seed)) // 2
        for request in audio_requests(pcm(self.seed)[:half]):
            await self._call.write(request)
        while not self._results:
            self._results += [r for r in (await self._call.read()).results if r.is_final]

    async def end(self) -> list[tuple]:
        """Send the rest, and give all the text."""
        for request in audio_requests(pcm(self.seed)[len(pcm(self.seed)) // 2 :]):
            await self._call.write(request)
        await self._call.done_writing()
        while (response := await self._call.read()) is not grpc.aio.EOF:
            self._results += [r for r in response.results if r.is_final]
        assert await self._call.code() is grpc.StatusCode.OK
        return written(segments_from_proto(self._results))


def written(segments) -> list[tuple]:
    return [(s.start_s, s.end_s, s.tokens, s.text) for s in segments]


def expected(checkpoints, client: Client) -> list[tuple]:
    return written(target_alone(checkpoints[0]).transcribe([pcm(client.seed)], OPTIONS)[0].segments)


@asynccontextmanager
async def clients_of(cluster, checkpoints, number: int) -> AsyncIterator[list[Client]]:
    """Have clients whose sessions are half way."""
    async with draft_server(cluster.front, None, load_checkpoint(str(checkpoints[1]))) as server:
        clients = [Client(server, seed) for seed in range(number)]
        await asyncio.gather(*(client.begin() for client in clients))
        yield clients


async def sessions_at(cluster) -> dict[str, int]:
    """Ask the front for targets until it has named all, and each of them how many sessions it has."""
    found: dict[str, int] = {}
    async with open_channel(cluster.front) as channel:
        front = verification_pb2_grpc.VerificationStub(channel)
        while len(found) < cluster.num_running:
            address = (await front.Locate(internal.LocateRequest())).address
            async with open_channel(address) as direct:
                told = await verification_pb2_grpc.VerificationStub(direct).Locate(internal.LocateRequest())
                found[address] = MAX_SESSIONS - told.free_slots
    return found


async def check_all(checkpoints, clients: list[Client]) -> None:
    texts = await asyncio.gather(*(client.end() for client in clients))
    assert texts == [expected(checkpoints, client) for client in clients]


async def running(cluster, number: int) -> None:
    await eventually(lambda: cluster.num_running == number, within_s=WAIT_S)


async def test_sessions_spread_evenly_and_outlive_a_target_that_is_killed(cluster, checkpoints):
    cluster.deploy()
    await running(cluster, 2)
    async with clients_of(cluster, checkpoints, 8) as clients:
        spread = await sessions_at(cluster)
        assert sorted(spread.values()) == [4, 4]
        process_at(next(iter(spread))).kill()
        await check_all(checkpoints, clients)


async def test_sessions_go_on_and_open_while_the_front_is_away(cluster, checkpoints):
    cluster.deploy()
    await running(cluster, 2)
    async with clients_of(cluster, checkpoints, 1) as clients:
        process_at(cluster.front).kill()
        clients.append(Client(clients[0].draft, seed=1))
        await clients[1].begin()
        await check_all(checkpoints, clients)


async def test_targets_come_and_go_with_the_sessions(cluster, checkpoints):
    cluster.scale(sessions_per_replica=2)
    await running(cluster, 1)
    async with clients_of(cluster, checkpoints, 3) as first:
        await running(cluster, 2)
        async with clients_of(cluster, checkpoints, 1) as last:
            assert sorted((await sessions_at(cluster)).values()) == [1, 3]
            await check_all(checkpoints, first)
            await running(cluster, 1)  # the newest one goes, and its session to the other
            await check_all(checkpoints, last)


async def test_another_version_takes_the_sessions_over(cluster, checkpoints):
    cluster.deploy()
    await running(cluster, 2)
    async with clients_of(cluster, checkpoints, 3) as clients:
        before = (await sessions_at(cluster)).keys()
        cluster.deploy(**{"log-level": "warning"})
        await eventually(lambda: cluster.num_running == -1, within_s=WAIT_S)
        await running(cluster, 2)
        assert not before & (await sessions_at(cluster)).keys()
        await check_all(checkpoints, clients)
