"""Summarise runs as a table and bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.chaos.runs import Outcome
from experiments.chaos.scenarios import NO_DRAFT_SERVER, PASSING, SILENT, WITH_SPARE, WITHOUT_DRAFT, Kind
from experiments.common.bench.report import Bar
from specwhisper.wire import SILENCE_S

RESUMES = "resume with a spare, p99"
MAX_RESUME_S = 3.0  # with a spare target or draft server
MAX_HEAL_S = 2.0  # after the network is back
MAX_UNMET = 0.1  # share of runs whose sessions ended before the fault
COLUMNS = ("runs", "sessions met", "wrong", "pause p50, s", "p99", "longest", "run, s")


@dataclass(frozen=True, slots=True)
class Pauses:
    """Times without a commit of the sessions that a fault met."""

    median_s: float
    p99_s: float
    longest_s: float


def pauses_of(outcomes: Iterable[Outcome]) -> Pauses | None:
    """Combine the pauses of several runs; ``None`` without any."""
    pauses_s = [pause for outcome in outcomes for pause in outcome.pauses_s]
    if not pauses_s:
        return None
    median_s, p99_s = np.quantile(pauses_s, (0.5, 0.99))
    return Pauses(float(median_s), float(p99_s), max(pauses_s))


def print_kinds(outcomes: Sequence[Outcome], console: Console) -> None:
    """Print a table with a row per kind of fault."""
    table = Table("fault", *COLUMNS, box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for kind in Kind:
        of_kind = [outcome for outcome in outcomes if outcome.scenario.kind is kind]
        if not of_kind:
            continue
        pauses = pauses_of(of_kind)
        shown = ("-",) * 3
        if pauses is not None:
            shown = (f"{pauses.median_s:.2f}", f"{pauses.p99_s:.2f}", f"{pauses.longest_s:.2f}")
        table.add_row(
            str(kind),
            str(len(of_kind)),
            str(sum(len(outcome.pauses_s) for outcome in of_kind)),
            str(sum(bool(outcome.all_violations) for outcome in of_kind)),
            *shown,
            f"{np.mean([outcome.took_s for outcome in of_kind]):.1f}",
        )
    console.print(table)


def bars(outcomes: Sequence[Outcome]) -> list[Bar]:
    """Return the bars of all runs."""
    num_wrong = sum(bool(one.violations) for outcome in outcomes for one in outcome.clients)
    num_broken = sum(bool(outcome.violations) for outcome in outcomes)
    num_sessions = sum(len(outcome.clients) for outcome in outcomes)
    num_unmet = sum(not outcome.pauses_s for outcome in outcomes)
    kinds = {outcome.scenario.kind for outcome in outcomes}
    num_idle = len(kinds - {outcome.scenario.kind for outcome in outcomes if outcome.pauses_s})
    found = [
        Bar("transcripts that differ or fail", num_wrong, 1, f"{num_wrong} of {num_sessions}"),
        Bar(
            "runs whose servers leak slots or exit with an error",
            num_broken,
            1,
            f"{num_broken} of {len(outcomes)}",
        ),
        Bar(
            "runs whose fault met no session",
            num_unmet / len(outcomes),
            MAX_UNMET,
            f"{num_unmet} of {len(outcomes)}",
        ),
        Bar("kinds of faults that met no session", num_idle, 1, f"{num_idle} of {len(kinds)}"),
    ]
    # When the only draft server is killed, clients that start just then find no server.
    others = (outcome for outcome in outcomes if outcome.scenario.kind not in NO_DRAFT_SERVER)
    there = [one for outcome in others for one in outcome.clients]
    num_again = sum(one.num_restarts > 0 for one in there)
    found.append(Bar("sessions that had to start again", num_again, 1, f"{num_again} of {len(there)}"))
    for name, kinds, bound, unit in (
        (RESUMES, WITH_SPARE, MAX_RESUME_S, "s"),
        ("resume at another draft server, p99", WITHOUT_DRAFT, MAX_RESUME_S, "s"),
        (
            "resume after a silence timeout, p99",
            SILENT,
            SILENCE_S + MAX_RESUME_S,
            f"s, {SILENCE_S:g} of them the silence timeout",
        ),
    ):
        pauses = pauses_of(outcome for outcome in outcomes if outcome.scenario.kind in kinds)
        if pauses is not None:
            found.append(Bar(name, pauses.p99_s, bound, f"{pauses.p99_s:.2f} {unit}"))
    healed_s = [
        pause - outcome.scenario.lasts_s
        for outcome in outcomes
        if outcome.scenario.kind in PASSING
        for pause in outcome.pauses_s
    ]
    if healed_s:
        p99_s = float(np.quantile(healed_s, 0.99))
        found.append(Bar("resume after the fault has ended, p99", p99_s, MAX_HEAL_S, f"{p99_s:.2f} s"))
    return found


def facts(outcome: Outcome) -> dict[str, Any]:
    """Return a run as JSON values."""
    return {
        "scenario": asdict(outcome.scenario),
        "has_fault_begun": outcome.has_fault_begun,
        "took_s": round(outcome.took_s, 3),
        "violations": list(map(str, outcome.violations)),
        "sessions": [
            {
                "request": one.request,
                "pause_s": one.pause_s,
                "num_restarts": one.num_restarts,
                "num_resumes": one.num_resumes,
                "violations": list(map(str, one.violations)),
                "num_updates": len(one.log.updates),
                "num_committed": one.log.updates[-1].num_committed if one.log.updates else 0,
            }
            for one in outcome.clients
        ],
    }
