"""Faults of servers and networks under running clients: each client's text is the target's alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from experiments.common.bench.report import Bar
from experiments.common.oracle import Violation, ViolationKind, longest_pause_s
from experiments.faults.kinds import KINDS
from experiments.faults.report import Result, none
from experiments.faults.world import Fault, Kind, Pause, Scenario, World

FREE_WITHIN_S = 10.0
MAX_UNMET = 0.1  # share of runs whose sessions ended before the fault


@dataclass(frozen=True, slots=True)
class Session:
    """Outcome of one client.

    Attributes
    ----------
    pause_s : longest time without a commit since the fault; ``None`` if the session had ended before, or did
        not need the server that was lost.
    num_restarts : how often it found no server before its first update, and started again.
    """

    request: str
    violations: tuple[Violation, ...]
    pause_s: float | None
    num_restarts: int = 0
    num_updates: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run; ``violations`` are those of servers."""

    scenario: Scenario
    sessions: tuple[Session, ...]
    violations: tuple[Violation, ...]
    has_fault_begun: bool
    took_s: float

    @property
    def all_violations(self) -> list[str]:
        of_sessions = (f"{one.request}: {wrong}" for one in self.sessions for wrong in one.violations)
        return [*map(str, self.violations), *of_sessions]

    @property
    def pauses_s(self) -> list[float]:
        return [one.pause_s for one in self.sessions if one.pause_s is not None]

    @property
    def figures(self) -> dict[str, Any]:
        return asdict(self) | {"scenario": asdict(self.scenario) | {"kind": self.scenario.kind.name}}


async def run(scenario: Scenario, folder: Path, *, fault: Fault | None = None, **settings: Any) -> Outcome:
    """Run a scenario in its own processes; ``fault`` replaces the fault of its kind."""
    began_s = monotonic()
    kind = scenario.kind
    async with World(scenario, folder, **settings) as world:
        await world.run(fault or kind.fault)
        wrong = await server_violations(world, FREE_WITHIN_S + kind.unnoticed_s)
        sessions = []
        for client in world.clients:
            was_met = world.fault_began_s is not None and (client.num_resumes or not kind.resumes_call)
            sessions.append(
                Session(
                    str(client.request),
                    tuple(client.violations()),
                    longest_pause_s(client.log, world.fault_began_s or 0.0) if was_met else None,
                    client.num_restarts,
                    len(client.log.updates),
                )
            )
        has_begun = world.fault_began_s is not None
    return Outcome(scenario, tuple(sessions), tuple(wrong), has_begun, monotonic() - began_s)


async def server_violations(world: World, within_s: float = FREE_WITHIN_S) -> list[Violation]:
    """Return violations of servers after their clients have ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FREE_WITHIN_S):
            await asyncio.gather(*(server.ended() for server in world.draining))
    wrong = [
        Violation(ViolationKind.BAD_EXIT, f"a drained server exited with {server.exit_status}")
        for server in world.draining
        if server.exit_status != 0
    ]
    await world.wait_held(within_s=within_s)
    if num_held := await world.num_held():
        wrong.append(Violation(ViolationKind.LEAKED_SLOTS, f"{num_held} slots were not freed"))
    return wrong


async def measure(scenarios: Sequence[Scenario], folder: Path, console: Console) -> Result:
    outcomes = []
    for scenario in track(scenarios, "scenarios", console=console, transient=True):
        outcomes.append(await run(scenario, folder))
    print_kinds(outcomes, console)
    figures = {
        "pauses_s": {kind.name: quantiles_s(found) for kind in KINDS if (found := pauses_s(outcomes, kind))},
        "runs": [outcome.figures for outcome in outcomes],
    }
    wrong = [f"{outcome.scenario}: {line}" for outcome in outcomes for line in outcome.all_violations]
    return Result(bars(outcomes), figures, wrong)


def quantiles_s(times_s: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the longest."""
    median_s, p99_s, longest_s = np.quantile(times_s, (0.5, 0.99, 1.0))
    return float(median_s), float(p99_s), float(longest_s)


def pauses_s(outcomes: Sequence[Outcome], kind: Kind) -> list[float]:
    return [pause for outcome in outcomes if outcome.scenario.kind is kind for pause in outcome.pauses_s]


def print_kinds(outcomes: Sequence[Outcome], console: Console) -> None:
    for kind in KINDS:
        of_kind = [outcome for outcome in outcomes if outcome.scenario.kind is kind]
        if of_kind:
            num_wrong = sum(bool(outcome.all_violations) for outcome in of_kind)
            waited = [f"{time_s:.2f}" for time_s in quantiles_s(pauses_s(of_kind, kind) or [nan])]
            pauses = "pauses p50 {} s, p99 {} s, longest {} s".format(*waited)
            console.print(f"{kind}: {num_wrong} of {len(of_kind)} runs wrong; {pauses}", highlight=False)


def bars(outcomes: Sequence[Outcome]) -> list[Bar]:
    sessions = [one for outcome in outcomes for one in outcome.sessions]
    # When the only draft server is killed, clients that start just then find no server.
    there = [one for outcome in outcomes if not outcome.scenario.kind.may_restart for one in outcome.sessions]
    kinds = {outcome.scenario.kind.name for outcome in outcomes}
    met = [outcome for outcome in outcomes if outcome.pauses_s]
    num_unmet = len(outcomes) - len(met)
    found = [
        none("transcripts that differ or fail", sum(bool(one.violations) for one in sessions), len(sessions)),
        none(
            "runs whose servers leak slots or exit with an error",
            sum(bool(outcome.violations) for outcome in outcomes),
            len(outcomes),
        ),
        Bar(
            "runs whose fault met no session",
            num_unmet / len(outcomes),
            MAX_UNMET,
            f"{num_unmet} of {len(outcomes)}",
        ),
        none(
            "kinds of faults that met no session",
            len(kinds - {outcome.scenario.kind.name for outcome in met}),
            len(kinds),
        ),
        none("sessions that had to start again", sum(one.num_restarts > 0 for one in there), len(there)),
    ]
    for awaited in Pause:
        name, bound_s = awaited.value
        waited_s = [
            pause - outcome.scenario.lasts_s
            for outcome in outcomes
            if outcome.scenario.kind.pause is awaited
            for pause in outcome.pauses_s
        ]
        if waited_s:
            _, p99_s, _ = quantiles_s(waited_s)
            found.append(Bar(name, p99_s, bound_s, f"{p99_s:.2f} s"))
    return found
