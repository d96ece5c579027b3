"""A rolling update to new weights under load: old sessions end on old targets, new ones open on new ones."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from experiments.common.bench.report import Bar
from experiments.common.network.proxy import Proxy
from experiments.common.servers.forked import ForkedServer
from experiments.fleet.crowd import Client, Outcome, not_whole
from experiments.fleet.servers import Fleet, Weights

NUM_TARGETS = 3
SLOTS = 32
LENGTHS_S = (30.0, 120.0)
OPENS_PER_S = 5.0
NUM_BEFORE, NUM_AFTERWARDS = 10, 10  # sessions that open before the update begins, and once it has ended
BOTH_SERVE_S = 3.0  # between a new target's start and the end of an old one
DRAIN_TIMEOUT_S = 60.0  # sessions of the last old target have no other to go to: they end where they are


@dataclass(frozen=True, slots=True)
class Updated:
    """Outcome of sessions while all targets were replaced.

    Attributes
    ----------
    weights : how many sessions each kind of weights wrote.
    num_old_afterwards : sessions that opened after the update and got old weights all the same.
    wrong : what was wrong with each session that failed, or whose text is no target's.
    """

    num_sessions: int
    weights: dict[str, int]
    num_old_afterwards: int
    wrong: tuple[str, ...]


async def measure_update(num_sessions: int, seed: int, folder: Path) -> Updated:
    """Replace each target by one of new weights while sessions open and run."""
    random = Random(seed)
    async with Fleet(folder) as fleet:
        old = [
            await fleet.start_target(max_sessions=SLOTS, drain_timeout_s=DRAIN_TIMEOUT_S)
            for _ in range(NUM_TARGETS)
        ]
        places = [await fleet.place(server) for server in old]
        spare = await fleet.place()
        draft = await fleet.start_draft(*(place.address for place in (*places, spare)))
        running: list[asyncio.Task[Outcome]] = []
        updating = asyncio.Event()

        async def open_sessions() -> None:
            while len(running) < num_sessions - NUM_AFTERWARDS:
                client = Client(folder, len(running), length_s=random.choice(LENGTHS_S))
                running.append(asyncio.create_task(client.run(draft.address)))
                if len(running) == NUM_BEFORE:
                    updating.set()
                await asyncio.sleep(random.expovariate(OPENS_PER_S))

        opening = asyncio.create_task(open_sessions())
        await updating.wait()
        await _replace_all(fleet, old, places, spare)
        await opening
        clients = [Client(folder, number) for number in range(NUM_AFTERWARDS)]
        afterwards = await asyncio.gather(*(client.run(draft.address) for client in clients))
        outcomes = [*await asyncio.gather(*running), *afterwards]
    return Updated(
        len(outcomes),
        dict(Counter(str(outcome.weights) for outcome in outcomes)),
        sum(outcome.weights is not Weights.NEW for outcome in afterwards),
        tuple(not_whole(outcomes)),
    )


async def _replace_all(
    fleet: Fleet, old: Sequence[ForkedServer], places: Sequence[Proxy], spare: Proxy
) -> None:
    """Start a new target at the address that is free, drain an old one, and continue with its address."""
    for server, place in zip(old, places, strict=True):
        spare.upstream = (await fleet.start_target(Weights.NEW, max_sessions=SLOTS)).address
        await asyncio.sleep(BOTH_SERVE_S)
        server.signal(signal.SIGTERM)
        await server.ended()
        place.upstream, spare = None, place


def bars(updated: Updated) -> list[Bar]:
    """Hold the sessions against what is promised."""
    return [
        Bar(
            "rolling update: sessions that failed, or got no target's text",
            len(updated.wrong),
            1,
            f"{len(updated.wrong)} of {updated.num_sessions}",
        ),
        Bar(
            "rolling update: sessions opened afterwards that got old weights",
            updated.num_old_afterwards,
            1,
            f"{updated.num_old_afterwards} of {NUM_AFTERWARDS}",
        ),
    ]
