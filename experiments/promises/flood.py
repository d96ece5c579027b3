"""Ten times more sessions than slots at once: refusals are quick, and other sessions are not affected."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import grpc
import grpc.aio
import numpy as np

from experiments.chaos.clients import Client
from experiments.common.bench.report import Bar
from experiments.promises.beside import bound_beside
from experiments.promises.servers import TARGET, Behaviour, running_pair
from experiments.promises.sessions import (
    NO_PROXY,
    all_begun,
    first_request,
    spoken,
    status_of,
    violations_of,
)
from specwhisper.live import LiveOptions
from specwhisper.rpc.channels import with_true_status
from specwhisper.wire.status import PUSHBACK_KEY
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub

SPARE_S = 0.05
CAPACITY = 8  # the servers' default
TIMES = 10
PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Flooded:
    """Outcome of floods.

    Attributes
    ----------
    alone_s : time of as many calls for the server's models at once instead, each time.
    answers_s : time of each refusal.
    num_other : calls without RESOURCE_EXHAUSTED and a pushback.
    wrong : violations of the sessions that were open before.
    """

    alone_s: tuple[float, ...]
    answers_s: tuple[float, ...]
    num_other: int
    wrong: tuple[str, ...]

    @property
    def p99_s(self) -> float:
        """The 99th percentile of the refusals."""
        return float(np.quantile(self.answers_s, 0.99))


async def measure_flood(floods: int, folder: Path) -> Flooded:
    """Fill a draft server with live sessions, and flood it."""
    settings = (TARGET, Behaviour())
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(running_pair(settings, max_sessions=CAPACITY))
        address = pair.draft.address
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=(NO_PROXY,)))
        await channel.channel_ready()
        stub = TranscriptionStub(channel)
        alone_s: list[float] = []
        answers: list[tuple[float, bool]] = []
        wrong: list[str] = []
        while len(answers) < floods * TIMES * CAPACITY:
            # Staggered, so that their steps do not coincide.
            begins_s = [number * LiveOptions().step_ms / 1_000 / CAPACITY for number in range(CAPACITY)]
            speakers = [Client(spoken(1.0, at_s), folder) for at_s in begins_s]
            running = [asyncio.create_task(speaker.run(address)) for speaker in speakers]
            await all_begun(speakers)
            for _ in range(min(3, floods - len(answers) // (TIMES * CAPACITY))):
                began_s = monotonic()
                await asyncio.gather(*(stub.GetModel(pb.GetModelRequest()) for _ in range(TIMES * CAPACITY)))
                alone_s.append(monotonic() - began_s)
                await asyncio.sleep(PAUSE_S)
                answers += await asyncio.gather(*(_open(stub) for _ in range(TIMES * CAPACITY)))
                await asyncio.sleep(PAUSE_S)
            await asyncio.gather(*running)
            wrong += violations_of(speakers)
    num_other = sum(not is_refused for _, is_refused in answers)
    return Flooded(tuple(alone_s), tuple(took_s for took_s, _ in answers), num_other, tuple(wrong))


def bars(flooded: Flooded) -> list[Bar]:
    """Return the bars."""
    num = len(flooded.answers_s)
    alone_s = float(np.median(flooded.alone_s))
    return [
        Bar(
            f"a flood of {TIMES}x the capacity is answered, p99, s",
            flooded.p99_s,
            bound_beside(alone_s, SPARE_S),
            f"{flooded.p99_s:.3f}, median {np.median(flooded.answers_s):.3f}, of {num}; as many calls for "
            f"the models {alone_s:.3f}",
        ),
        Bar("opens that were not refused with a pushback", flooded.num_other, 1, f"{flooded.num_other}"),
        Bar("errors of sessions beside a flood", len(flooded.wrong), 1, f"{len(flooded.wrong)}"),
    ]


async def _open(stub: TranscriptionStub) -> tuple[float, bool]:
    """Open a session without a free slot; return its time, and whether it was refused with a pushback."""
    began_s = monotonic()
    call = with_true_status(stub.StreamingRecognize())
    with suppress(grpc.aio.AioRpcError):  # the call may be refused before the first write
        await call.write(first_request())
    code, trailing = await status_of(call)
    took_s = monotonic() - began_s
    return took_s, code is grpc.StatusCode.RESOURCE_EXHAUSTED and PUSHBACK_KEY in trailing
