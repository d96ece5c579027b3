"""A client that reads nothing: it is ended, and those beside it are as quick as without it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from time import monotonic

import grpc
import numpy as np

from experiments.chaos.clients import Client
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import ratio_of_medians, spread
from experiments.promises.servers import TARGET, Behaviour, Pair, running_pair
from experiments.promises.sessions import TAKES_LITTLE, bare_call, recorded, status_of, violations_of
from specwhisper.types import Mode

MAX_RATIO = 1.2
NUM_OTHERS = 3
LENGTH_S, FOURTH_LENGTH_S = 60.0, 300.0
STUCK_WITHIN_S = 2.0  # all that a client takes that reads nothing is taken by then


class Fourth(StrEnum):
    """A client beside the others."""

    NONE = "without it"
    NOT_READING = "beside it"
    READER = "beside one that reads"


@dataclass(frozen=True, slots=True)
class Beside:
    """Outcome of runs beside a client that does not read, one that reads, and none, in turn.

    Attributes
    ----------
    idle_timeout_s : of the draft server: how long one answer may wait.
    gaps_s : of each run, the 99th percentile of the times between commits, by who was there.
    statuses : with which clients that read nothing were ended.
    wrong : with the texts of those beside it.
    """

    idle_timeout_s: float
    gaps_s: dict[Fourth, list[float]]
    statuses: tuple[str, ...]
    wrong: tuple[str, ...]


async def measure_slow_reader(idle_timeout_s: float, rounds: int, seed: int, folder: Path) -> Beside:
    """Run all arms by turns, in random order, each for longer than the server waits for who does not read."""
    random = Random(seed)
    gaps_s: dict[Fourth, list[float]] = {fourth: [] for fourth in Fourth}
    statuses: list[str] = []
    wrong: list[str] = []
    lasts_s = idle_timeout_s + STUCK_WITHIN_S
    async with running_pair((TARGET, Behaviour()), idle_timeout_s=idle_timeout_s) as pair:
        await _run(pair, folder, Fourth.NONE, STUCK_WITHIN_S)  # warms up
        for _ in range(rounds):
            for fourth in random.sample(list(Fourth), len(Fourth)):
                others, status = await _run(pair, folder, fourth, lasts_s)
                gaps_s[fourth].append(
                    float(np.quantile([gap for one in others for gap in one.log.gaps_s], 0.99))
                )
                wrong += violations_of(others)
                statuses += [status] if fourth is Fourth.NOT_READING else []
    return Beside(idle_timeout_s, gaps_s, tuple(statuses), tuple(wrong))


def bars(beside: Beside, seed: int) -> list[Bar]:
    """Hold the runs against the bar."""
    ratio = ratio_of_medians(beside.gaps_s[Fourth.NOT_READING], beside.gaps_s[Fourth.NONE], seed=seed)
    num_other = sum(status != grpc.StatusCode.RESOURCE_EXHAUSTED.name for status in beside.statuses)
    shown = [f"{ratio.value - 1:+.0%} (95 %: {ratio.low - 1:+.0%} to {ratio.high - 1:+.0%})"]
    shown += [
        f"{spread([1_000 * gap for gap in of_runs_s]):.0f} ms {fourth}"
        for fourth, of_runs_s in beside.gaps_s.items()
    ]
    waits = f"{beside.idle_timeout_s:g} s"
    return [
        Bar(
            f"times between commits beside a reader that is ended after {waits}, p99",
            ratio.value,
            MAX_RATIO,
            ", ".join(shown),
        ),
        Bar("slow readers that were not ended so", num_other, 1, f"{num_other} of {len(beside.statuses)}"),
        Bar("errors of sessions beside a slow reader", len(beside.wrong), 1, f"{len(beside.wrong)}"),
    ]


async def _run(pair: Pair, folder: Path, fourth: Fourth, lasts_s: float) -> tuple[list[Client], str]:
    others: list[Client] = []
    until_s = monotonic() + lasts_s

    async def one_by_one(seed: int) -> None:
        while monotonic() < until_s:
            others.append(Client(recorded(LENGTH_S, seed), folder))
            await others[-1].run(pair.draft.address)

    status = ""
    async with AsyncExitStack() as stack:
        call = None
        if fourth is not Fourth.NONE:
            reads = fourth is Fourth.READER
            options = () if reads else TAKES_LITTLE
            call = await stack.enter_async_context(
                bare_call(
                    pair.draft.address, Mode.FULL, length_s=FOURTH_LENGTH_S, reads=reads, options=options
                )
            )
        await asyncio.gather(*map(one_by_one, range(NUM_OTHERS)))
        if call is not None and fourth is Fourth.NOT_READING:
            await pair.wait_held((0, 0, 0))  # it has been ended by then
            code, _ = await status_of(call)
            status = code.name
    await pair.idle()
    return others, status
