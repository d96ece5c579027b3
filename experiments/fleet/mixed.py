"""Targets with different weights at one draft server: sessions keep the weights of their start."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from experiments.common.bench.report import Bar
from experiments.fleet.crowd import Client, Outcome, not_whole, run_together
from experiments.fleet.servers import Fleet, Weights

IN_SEQUENCE, AT_ONCE, NUM_MOVED = 12, 4, 3


@dataclass(frozen=True, slots=True)
class Mixed:
    """Outcome of sessions in a mixed fleet.

    Attributes
    ----------
    num_opened : sessions that found two kinds of targets from the beginning.
    num_moved : sessions whose target was killed while one of other weights had the most room.
    num_kept_weights : how many of those ended with the weights that they began on.
    weights : how many of the opened sessions each kind of weights wrote.
    wrong : what was wrong with each session that failed, or whose text is no target's.
    """

    num_opened: int
    num_moved: int
    num_kept_weights: int
    weights: dict[str, int]
    wrong: tuple[str, ...]


async def measure_mixed(rounds: int, folder: Path) -> Mixed:
    """Open sessions at targets of two weights, and kill a target beside one of other weights."""
    opened: list[Outcome] = []
    moved: list[Outcome] = []
    for _ in range(rounds):
        async with Fleet(folder) as fleet:
            old = await fleet.start_target(Weights.OLD, max_sessions=4)
            new = await fleet.start_target(Weights.NEW, max_sessions=5)
            draft = await fleet.start_draft(old.address, new.address)
            for number in range(IN_SEQUENCE):
                opened.append(await Client(folder, number, length_s=5.0).run(draft.address))
            for _ in range(2):
                clients = [Client(folder, number) for number in range(AT_ONCE)]
                opened += await run_together(clients, draft.address)
        moved += await _kill_beside_other_weights(folder)
    return Mixed(
        len(opened),
        len(moved),
        sum(outcome.weights is Weights.OLD for outcome in moved),
        dict(Counter(str(outcome.weights) for outcome in opened)),
        tuple(not_whole([*opened, *moved])),
    )


async def _kill_beside_other_weights(folder: Path) -> list[Outcome]:
    """Kill the target of all sessions while one of other weights has the most room."""
    async with Fleet(folder) as fleet:
        victim = await fleet.start_target(Weights.OLD)
        other = await fleet.start_target(Weights.NEW, max_sessions=9)
        spare = await fleet.start_target(Weights.OLD, max_sessions=NUM_MOVED)
        places = [await fleet.place() for _ in (other, spare)]
        draft = await fleet.start_draft(victim.address, *(place.address for place in places))
        clients = [Client(folder, number, length_s=120.0) for number in range(NUM_MOVED)]
        running = asyncio.create_task(run_together(clients, draft.address))
        await asyncio.gather(*(client.has_begun.wait() for client in clients))
        for place, server in zip(places, (other, spare), strict=True):
            place.upstream = server.address
        await victim.kill()
        return await running


def bars(mixed: Mixed) -> list[Bar]:
    """Hold the sessions against what is promised."""
    num_other = mixed.num_moved - mixed.num_kept_weights
    unused = [weights for weights in Weights if not mixed.weights.get(str(weights))]
    of_all = f"of {mixed.num_opened + mixed.num_moved}"
    return [
        Bar(
            "mixed weights: sessions that failed, or got no target's text",
            len(mixed.wrong),
            1,
            f"{len(mixed.wrong)} {of_all}",
        ),
        Bar(
            "mixed weights: sessions that changed weights under way",
            num_other,
            1,
            f"{num_other} of {mixed.num_moved}",
        ),
        Bar(
            "mixed weights: kinds of them that wrote no session",
            len(unused),
            1,
            ", ".join(f"{num} by {weights}" for weights, num in mixed.weights.items()),
        ),
    ]
