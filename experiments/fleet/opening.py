"""Targets that are lost while a session opens: it looks for another one for as long as any session does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from experiments.common.bench.report import Bar
from experiments.fleet.crowd import Client, not_whole, run_together
from experiments.fleet.servers import Fleet

NUM_CLIENTS = 4
OPENING_BYTES = 2_000  # a hello and some audio: more than a connection lets through while it fails
FAILS_FOR_S = 4.0
RESET_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Opened:
    """Outcome of sessions whose targets were lost while they opened.

    Attributes
    ----------
    num_reset : connections that were reset meanwhile.
    num_calm : rounds in which none was.
    wrong : what was wrong with each session that failed, or whose text is no target's.
    """

    num_sessions: int
    num_reset: int
    num_calm: int
    wrong: tuple[str, ...]


async def measure_opening(rounds: int, folder: Path) -> Opened:
    """Reset the connections to all targets a moment after each is used, for some seconds."""
    wrong: list[str] = []
    resets: list[int] = []
    for _ in range(rounds):
        async with Fleet(folder) as fleet:
            targets = [await fleet.start_target() for _ in range(2)]
            places = [await fleet.place(target) for target in targets]
            draft = await fleet.start_draft(*(place.address for place in places))
            await Client(folder, length_s=1.0).run(draft.address)
            until_s = asyncio.get_running_loop().time() + FAILS_FOR_S
            clients = [Client(folder, number, length_s=30.0) for number in range(NUM_CLIENTS)]
            running = asyncio.create_task(run_together(clients, draft.address))
            while asyncio.get_running_loop().time() < until_s:
                for place in places:
                    if place.bytes_left is None:
                        place.bytes_left = OPENING_BYTES
                await asyncio.sleep(RESET_EVERY_S)
            for place in places:
                place.bytes_left = None
            wrong += not_whole(await running)
            resets.append(sum(place.num_reset for place in places))
    return Opened(rounds * NUM_CLIENTS, sum(resets), resets.count(0), tuple(wrong))


def bars(opened: Opened) -> list[Bar]:
    """Hold the sessions against what is promised."""
    return [
        Bar(
            "targets lost while sessions open: sessions that failed",
            len(opened.wrong),
            1,
            f"{len(opened.wrong)} of {opened.num_sessions}, {opened.num_reset} connections reset",
        ),
        Bar(
            "targets lost while sessions open: rounds in which none was",
            opened.num_calm,
            1,
            f"{opened.num_calm}",
        ),
    ]
