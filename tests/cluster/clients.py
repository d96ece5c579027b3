"""Clients of targets under Ray, and the text that each of them must get."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from experiments.common.inline_pair import InlinePair
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import open_channel
from specwhisper.wire.v1 import verification_pb2 as internal
from specwhisper.wire.v1 import verification_pb2_grpc
from tests.cluster.conftest import MAX_SESSIONS, START_TIMEOUT_S, Targets
from tests.rpc.services import Draft, HalfSent, draft_server, expected_finals, finals, recording

OPTIONS = DecodingOptions.greedy(language="en")
LENGTH_S = 70.0


@cache
def target_alone(folder: Path) -> InlinePair:
    """Return the target without a draft, in this process."""
    return InlinePair(WhisperModel(load_checkpoint(str(folder)), 1))


def expected(checkpoints, seed: int) -> list[tuple]:
    """Return the segments that the target alone writes of a recording."""
    [transcription] = target_alone(checkpoints[0]).transcribe([recording(LENGTH_S, seed)], OPTIONS)
    return expected_finals(transcription)


class Client(HalfSent):
    """Streams a recording in two halves."""

    def __init__(self, draft: Draft, seed: int) -> None:
        decoding = {"greedy": True, "languages": [OPTIONS.language]}
        super().__init__(draft, "MODE_FULL", seed, LENGTH_S, LENGTH_S / 2, gamma=4, decoding=decoding)
        self.draft, self.seed = draft, seed

    async def finish(self) -> list[tuple]:
        """Send the second half, and return all segments."""
        return finals(await self.rest())


@asynccontextmanager
async def started_clients(targets: Targets, checkpoints, number: int) -> AsyncIterator[list[Client]]:
    """Yield clients that have sent their first halves, on one draft server."""
    draft = load_checkpoint(str(checkpoints[1]))
    # They send nothing while targets start, which takes long on a busy machine.
    async with draft_server(targets.locator, None, draft, idle_timeout_s=2 * START_TIMEOUT_S) as server:
        clients = [Client(server, seed) for seed in range(number)]
        await asyncio.gather(*(client.begin() for client in clients))
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
