"""``python -m experiments.faults``: chaos, promises, soak, fleet."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from experiments.common.bench.program import Program, program
from experiments.common.servers.forked import check_heap_is_counted
from experiments.faults import chaos as faults
from experiments.faults import fleet, gateway, kinds, promises
from experiments.faults import soak as soaking
from experiments.faults.clients import DEMO_DRAFT, DEMO_TARGET
from experiments.faults.kinds import measure_controls
from experiments.faults.report import SCRIPTED_MODELS, Measure, end, measure_parts
from specwhisper.rpc.process import freeze_loaded

PROMISES: dict[str, Measure] = {
    "cancel": promises.measure_cancel,
    "flood": promises.measure_flood,
    "resets": promises.measure_resets,
    "slow-reader": promises.measure_slow_reader,
    "bombs": promises.measure_bombs,
    "stops": promises.measure_stops,
    "faults": promises.measure_faults,
    "messages": gateway.measure_messages,
    "beside": gateway.measure_beside,
}
WIDE = ("resets", "bombs", "stops", "faults")  # bars, so that --quick runs these at the same time
SEEDS = 100
DEMO_MODELS = {"target": DEMO_TARGET, "draft": DEMO_DRAFT}

Logs = Annotated[
    Path | None, typer.Option(file_okay=False, help="Folder of the servers' logs. [default: not kept]")
]
Promise = StrEnum("Promise", [(name, name) for name in PROMISES])
FleetPart = StrEnum("FleetPart", [(name, name) for name in fleet.PARTS])
FaultKind = StrEnum("FaultKind", [(kind.name, kind.name) for kind in kinds.KINDS])
ONLY = typer.Option("--only", help="Part; repeat for more. [default: all]")

os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the servers
app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.command()
@program
def chaos(
    given: Program,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs, each with its own seed. [default: 100; fewer with --demo]"),
    ] = None,
    is_demo: Annotated[
        bool, typer.Option("--demo", help="Use the demo pair and recorded speech, not scripted models.")
    ] = False,
    only: Annotated[list[FaultKind] | None, ONLY] = None,
    logs: Logs = None,
) -> None:
    """Kill, stop, disconnect and replace servers under running clients, and check each client's text.

    Servers are real processes with scripted models, whose text depends on every sample and every earlier
    token. Every client's text must equal that of the target alone; otherwise the exit status is 1.
    """
    plans = [
        (kind, point)
        for kind, point in given.choose(kinds.QUICK, kinds.EVERY)
        if not only or kind.name in only
    ]
    num = seeds or (len(plans) if given.quick or is_demo else SEEDS)
    scenarios = [faults.draw(given.seed + i, *plans[i % len(plans)], is_demo=is_demo) for i in range(num)]
    folder = logs or given.folder
    results = {"chaos": asyncio.run(faults.measure(scenarios, folder, given.console))}
    results["controls"] = asyncio.run(measure_controls(folder))
    end(given, results, DEMO_MODELS if is_demo else SCRIPTED_MODELS)


@app.command("promises")
@program
def keep_promises(given: Program, only: Annotated[list[Promise] | None, ONLY] = None) -> None:
    """Measure promises to clients that leave, flood, do not read or send bombs, and under faults.

    Exits with 1 if a text is wrong or a promise could not be measured.
    """
    freeze_loaded()  # a garbage collection of loaded modules would count as a server's delay
    parts = {name: PROMISES[name] for name in only or PROMISES}
    end(given, asyncio.run(measure_parts(parts, given, together=given.choose(WIDE, ()))))


@app.command()
@program
def soak(given: Program) -> None:
    """Run short sessions, of which many are left at any moment, then streams for minutes.

    Between the sessions memory, open files, threads, tasks, slots and places are counted. At last servers
    that leak 8 KiB a session are looked at in the same way, which must be noticed of each.
    """
    check_heap_is_counted()
    end(given, {"soak": asyncio.run(soaking.measure(given))})


@app.command("fleet")
@program
def run_fleet(
    given: Program, only: Annotated[list[FleetPart] | None, ONLY] = None, logs: Logs = None
) -> None:
    """Run crowds of clients against several servers, and compare each text with that of one target's weights.

    Exits with 1 if a session failed without need.
    """
    parts = {name: fleet.PARTS[name] for name in only or fleet.PARTS}
    end(given, asyncio.run(measure_parts(parts, replace(given, folder=logs or given.folder))))


if __name__ == "__main__":
    app()
