"""A draft engine that hangs: sessions continue without drafts, report it, and have the same text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from experiments.common.bench.report import Bar
from experiments.common.servers.forked import ForkedServer
from experiments.fleet.crowd import Client, Outcome, not_whole, run_together
from experiments.fleet.servers import Fleet
from specwhisper.rpc.channels import open_channel
from specwhisper.types import Mode

DRAFT_TIMEOUT_S = 2.0  # of the draft server, to place its model, to open a session, or for one step
MAX_OPENING_S = DRAFT_TIMEOUT_S + 2.0  # the target's first text comes soon after that
MAX_KNOWN_OPENING_S = 1.5  # of sessions that come once the hang is known: none waits for the engine
MAX_SAID_S = 9.0  # the engine is looked at four times in its time limit, and then by health every 5 s
PLACE_S = 10.0  # in which the model is placed: longer than it takes to find that out
HANGS_AT = 60  # steps of the draft: its first sessions are under way
PASS_MS = 40.0  # of the target: so that they still are when the hang is noticed
NOTICED_WITHIN_S = DRAFT_TIMEOUT_S + 1.0
NUM_UNDER_WAY, NUM_OPENED = 4, 4
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Hung:
    """Outcome of sessions whose draft engine hung.

    Attributes
    ----------
    where : what the engine hung in.
    num_due : sessions that should have run ``target-only``: of those under way, the ones that ended once the
        hang must have been noticed.
    num_silent : those of them that did not report it.
    longest_opening_s : from the beginning of a session that opened afterwards to its first text.
    longest_known_opening_s : the same of those that came once health said that the engine hangs.
    longest_said_s : from the hang until health and metric said so.
    wrong : what was wrong with each session that failed, or whose text is no target's.
    """

    where: str
    num_sessions: int
    num_due: int
    num_silent: int
    longest_opening_s: float
    longest_known_opening_s: float
    longest_said_s: float
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Round:
    """One hang: sessions under way and those opened then, at once and once it was known."""

    due: Sequence[Outcome]
    under_way: Sequence[Outcome]
    at_once: Sequence[Outcome]
    afterwards: Sequence[Outcome]
    said_s: float
    wrong: tuple[str, ...] = ()


async def measure_hung(rounds: int, folder: Path) -> list[Hung]:
    """Hang draft engines in a step and as their models are placed, under sessions and before others."""
    found = [await asyncio.gather(_in_step(folder), _as_placed(folder)) for _ in range(rounds)]
    in_steps, as_placed = zip(*found, strict=True)
    return [_summary("in a step", in_steps), _summary("as it was placed", as_placed)]


async def _in_step(folder: Path) -> _Round:
    async with Fleet(folder) as fleet:
        target = await fleet.start_target(pass_ms=PASS_MS)
        draft = await fleet.start_draft(
            target.address, failpoints=f"draft.before=hang@{HANGS_AT}", draft_timeout_s=DRAFT_TIMEOUT_S
        )
        clients = [Client(folder, number, length_s=600.0) for number in range(NUM_UNDER_WAY)]
        running = asyncio.create_task(run_together(clients, draft.address))
        while not (await draft.probe("hanging"))["hanging"]:
            await asyncio.sleep(POLL_S)
        hung_s = monotonic()
        at_once, said_s = await asyncio.gather(
            run_together(_clients(folder), draft.address), _said_s(draft, hung_s)
        )
        afterwards = await run_together(_clients(folder), draft.address)
        before = await running
    noticed_s = hung_s + NOTICED_WITHIN_S
    due = [each for each in (*before, *at_once, *afterwards) if each.ended_s > noticed_s]
    return _Round(due, before, at_once, afterwards, said_s)


async def _as_placed(folder: Path) -> _Round:
    async with Fleet(folder) as fleet:
        target = await fleet.start_target()
        draft = await fleet.start_draft(target.address, place_s=PLACE_S, draft_timeout_s=DRAFT_TIMEOUT_S)
        at_once, said_s = await asyncio.gather(  # the first of them has the model placed
            run_together(_clients(folder), draft.address), _said_s(draft, monotonic())
        )
        afterwards = await run_together(_clients(folder), draft.address)
        while (await draft.probe("engine_hangs"))["engine_hangs"]:
            await asyncio.sleep(POLL_S)
        last = await Client(folder, length_s=30.0).run(draft.address)
    is_drafted = last.is_whole and last.mode is not Mode.TARGET_ONLY
    wrong = () if is_drafted else (f"once the draft was placed, a session had no drafts: {last}",)
    return _Round([*at_once, *afterwards], (), at_once, afterwards, said_s, wrong)


async def _said_s(draft: ForkedServer, hung_s: float) -> float:
    """Wait until health and metric report that the engine hangs; return how long after the hang that was."""
    async with open_channel(draft.address) as channel:
        health = HealthStub(channel)
        while monotonic() - hung_s < MAX_SAID_S:
            is_said = (await health.Check(HealthCheckRequest())).status == HealthCheckResponse.NOT_SERVING
            if is_said and (await draft.probe("engine_hangs"))["engine_hangs"]:
                return monotonic() - hung_s
            await asyncio.sleep(POLL_S)
    return inf


def _clients(folder: Path) -> Sequence[Client]:
    return [Client(folder, number, length_s=30.0) for number in range(NUM_OPENED)]


def _summary(where: str, rounds: Sequence[_Round]) -> Hung:
    opened = [outcome for each in rounds for outcome in (*each.at_once, *each.afterwards)]
    outcomes = [*(outcome for each in rounds for outcome in each.under_way), *opened]
    due = [outcome for each in rounds for outcome in each.due]
    return Hung(
        where,
        len(outcomes),
        len(due),
        sum(not outcome.error and outcome.mode is not Mode.TARGET_ONLY for outcome in due),
        _longest_opening_s(opened),
        _longest_opening_s([outcome for each in rounds for outcome in each.afterwards]),
        max(each.said_s for each in rounds),
        (*not_whole(outcomes), *(line for each in rounds for line in each.wrong)),
    )


def _longest_opening_s(outcomes: Sequence[Outcome]) -> float:
    return max(inf if outcome.first_s is None else outcome.first_s - outcome.began_s for outcome in outcomes)


def bars(hung: Hung) -> list[Bar]:
    """Hold the sessions against what is promised."""
    what = f"draft hung {hung.where}"
    return [
        Bar(
            f"{what}: sessions that failed, or got no target's text",
            len(hung.wrong),
            1,
            f"{len(hung.wrong)} of {hung.num_sessions}",
        ),
        Bar(
            f"{what}: sessions that did not report that they ran target-only",
            hung.num_silent if hung.num_due else inf,  # nothing was measured
            1,
            f"{hung.num_silent} of {hung.num_due} that should have",
        ),
        Bar(
            f"{what}: first text of sessions opened afterwards, --draft-timeout {DRAFT_TIMEOUT_S:g}, s",
            hung.longest_opening_s,
            MAX_OPENING_S,
            f"{hung.longest_opening_s:.2f} at most",
        ),
        Bar(
            f"{what}: first text of sessions opened once health said so, s",
            hung.longest_known_opening_s,
            MAX_KNOWN_OPENING_S,
            f"{hung.longest_known_opening_s:.2f} at most",
        ),
        Bar(
            f"{what}: until health and metric said so, s",
            hung.longest_said_s,
            MAX_SAID_S,
            f"{hung.longest_said_s:.2f} at most",
        ),
    ]
