"""Several draft servers: sessions are spread over them, and one that is full is left."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from experiments.common.bench.report import Bar
from experiments.fleet.crowd import Client, not_whole, run_over_one, run_together
from experiments.fleet.servers import Fleet

NUM_DRAFTS = 3
NUM_SESSIONS = 12
MAX_APART = 1  # between the draft server with the most sessions and the one with the fewest, of a list
SMALL_SLOTS = 2  # of one draft server, where there is room for all sessions only beside it
LENGTH_S = 30.0


@dataclass(frozen=True, slots=True)
class Spread:
    """How sessions that opened at once were spread.

    Attributes
    ----------
    most_apart : by how many sessions draft servers of a list differed, at most.
    num_idle : draft servers after a balancer of connections that had no session.
    num_at_small : sessions at the draft server that has room for only :data:`SMALL_SLOTS`.
    num_unfilled : rounds in which it had fewer than that.
    wrong : what was wrong with each session that failed, or whose text is no target's.
    """

    num_sessions: int
    most_apart: int
    num_idle: int
    num_at_small: int
    num_unfilled: int
    wrong: tuple[str, ...]


async def measure_spread(rounds: int, folder: Path) -> Spread:
    """Open sessions at a list of draft servers, after a balancer, and where one of them is soon full."""
    wrong: list[str] = []
    most_apart = num_idle = 0
    at_small: list[int] = []
    for _ in range(rounds):
        async with Fleet(folder) as fleet:
            target = await fleet.start_target(max_sessions=2 * NUM_SESSIONS)
            drafts = [await fleet.start_draft(target.address) for _ in range(NUM_DRAFTS)]
            small = await fleet.start_draft(target.address, max_sessions=SMALL_SLOTS)
            logs = [folder / f"{draft.name}.log" for draft in drafts]
            listed = ",".join(draft.address for draft in drafts)

            wrong += not_whole(await run_over_one(_clients(folder), listed))
            counts = [_num_opened(log) for log in logs]
            most_apart = max(most_apart, max(counts) - min(counts))

            balancer = await fleet.place()
            balancer.upstream = listed
            wrong += not_whole(await run_over_one(_clients(folder), balancer.address))
            num_idle += sum(_num_opened(log) == before for log, before in zip(logs, counts, strict=True))

            beside = f"{small.address},{drafts[0].address}"
            wrong += not_whole(await run_over_one(_clients(folder), beside))
            wrong += not_whole(await run_together(_clients(folder), beside))
            at_small.append(_num_opened(folder / f"{small.name}.log"))
    num_unfilled = sum(num < SMALL_SLOTS for num in at_small)
    return Spread(4 * rounds * NUM_SESSIONS, most_apart, num_idle, sum(at_small), num_unfilled, tuple(wrong))


def _clients(folder: Path) -> list[Client]:
    return [Client(folder, number, length_s=LENGTH_S, resume_timeout_s=0) for number in range(NUM_SESSIONS)]


def _num_opened(log: Path) -> int:
    """Count the sessions that a server has opened."""
    return sum(json.loads(line)["message"] == "session opened" for line in log.read_text().splitlines())


def bars(spread: Spread) -> list[Bar]:
    """Hold the sessions against what is promised."""
    return [
        Bar(
            "several draft servers: sessions that failed, or got no target's text",
            len(spread.wrong),
            1,
            f"{len(spread.wrong)} of {spread.num_sessions}",
        ),
        Bar(
            f"{NUM_DRAFTS} draft servers of a list: sessions by which they differ",
            spread.most_apart,
            MAX_APART + 1,
            f"{spread.most_apart} at most",
        ),
        Bar(
            f"{NUM_DRAFTS} draft servers after a balancer: without a session",
            spread.num_idle,
            1,
            f"{spread.num_idle}",
        ),
        Bar(
            f"a draft server with room for {SMALL_SLOTS}: rounds in which it was not filled",
            spread.num_unfilled,
            1,
            f"{spread.num_unfilled}, {spread.num_at_small} sessions in all",
        ),
    ]
