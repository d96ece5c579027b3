"""A draft engine that hangs: sessions go on without drafts, say so, and have the same text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic

from experiments.common.report import Bar
from experiments.fleet.crowd import Client, Outcome, not_whole, run_together
from experiments.fleet.servers import Fleet
from specwhisper.types import Mode

DRAFT_TIMEOUT_S = 2.0  # of the draft server, for one step or to open a session
MAX_OPENING_S = DRAFT_TIMEOUT_S + 2.0  # the target's first text comes soon after that
HANGS_AT = 60  # steps of the draft: its first sessions are under way
PASS_MS = 40.0  # of the target: so that they still are when the hang is noticed
NOTICED_WITHIN_S = DRAFT_TIMEOUT_S + 1.0
NUM_UNDER_WAY, NUM_OPENED = 4, 4
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Hung:
    """What became of sessions whose draft engine hung.

    Attributes
    ----------
    num_due : sessions that ended once the hang must have been noticed.
    num_silent : those of them that did not say that they ran ``target-only``.
    longest_opening_s : from the beginning of a session that opened afterwards to its first text.
    wrong : what was wrong with each session that failed, or whose text is no target's.
    """

    num_sessions: int
    num_due: int
    num_silent: int
    longest_opening_s: float
    wrong: tuple[str, ...]


async def measure_hung(rounds: int, folder: Path) -> Hung:
    """Hang the draft engine under sessions, and open others at once and once its server knows."""
    under_way: list[Outcome] = []
    opened: list[Outcome] = []
    due: list[Outcome] = []
    for _ in range(rounds):
        async with Fleet(folder) as fleet:
            target = await fleet.start_target(pass_ms=PASS_MS)
            draft = await fleet.start_draft(
                target.address, failpoints=f"draft.before=hang@{HANGS_AT}", draft_timeout_s=DRAFT_TIMEOUT_S
            )
            clients = [Client(folder, number, length_s=600.0) for number in range(NUM_UNDER_WAY)]
            running = asyncio.create_task(run_together(clients, draft.address))
            while not (await draft.probe("hanging"))["hanging"]:
                await asyncio.sleep(POLL_S)
            noticed_s = monotonic() + NOTICED_WITHIN_S
            at_once, before = await asyncio.gather(run_together(_clients(folder), draft.address), running)
            afterwards = await run_together(_clients(folder), draft.address)
            under_way += before
            opened += [*at_once, *afterwards]
            due += [each for each in (*before, *at_once, *afterwards) if each.ended_s > noticed_s]
    outcomes = [*under_way, *opened]
    return Hung(
        len(outcomes),
        len(due),
        sum(not outcome.error and outcome.mode is not Mode.TARGET_ONLY for outcome in due),
        max(inf if outcome.first_s is None else outcome.first_s - outcome.began_s for outcome in opened),
        tuple(not_whole(outcomes)),
    )


def _clients(folder: Path) -> Sequence[Client]:
    return [Client(folder, number, length_s=30.0) for number in range(NUM_OPENED)]


def bars(hung: Hung) -> list[Bar]:
    """Hold the sessions against what is promised."""
    of_all = f"of {hung.num_sessions}"
    return [
        Bar(
            "hung draft: sessions that failed, or got no target's text",
            len(hung.wrong),
            1,
            f"{len(hung.wrong)} {of_all}",
        ),
        Bar(
            "hung draft: sessions that did not say they ran target-only",
            hung.num_silent,
            1,
            f"{hung.num_silent} of {hung.num_due} that ended after it was noticed",
        ),
        Bar(
            f"hung draft: first text of sessions opened afterwards, --draft-timeout {DRAFT_TIMEOUT_S:g}, s",
            hung.longest_opening_s,
            MAX_OPENING_S,
            f"{hung.longest_opening_s:.2f} at most",
        ),
    ]
