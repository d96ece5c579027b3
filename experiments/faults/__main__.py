"""``python -m experiments.faults``: chaos, promises, soak, fleet."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import open_console, print_bars
from experiments.common.servers.heap import check_heap_is_counted
from experiments.faults import chaos as faults
from experiments.faults import demo, fleet, gateway, kinds, promises, soak
from experiments.faults.controls import measure_controls
from experiments.faults.report import SCRIPTED_MODELS, Measure, Run, finish, measure_parts
from specwhisper.errors import SpecWhisperError
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
    "far-targets": promises.measure_far_targets,
    "beside": gateway.measure_beside,
    "slow-targets": promises.measure_slow_targets,
    "texts": promises.measure_texts,
    "slow-link": promises.measure_slow_links,
}
# --quick runs the first beside all others, since they only wait, and those with wide bars at the same time.
WAITING = ("far-targets", "slow-link")
WIDE = ("resets", "bombs", "stops", "faults", "slow-targets", "texts")
SEEDS = 100

Logs = Annotated[
    Path | None, typer.Option(file_okay=False, help="Folder of the servers' logs. [default: not kept]")
]


Promise = StrEnum("Promise", [(name, name) for name in PROMISES])
FleetPart = StrEnum("FleetPart", [(name, name) for name in fleet.PARTS])
FaultKind = StrEnum("FaultKind", [(kind.name, kind.name) for kind in kinds.KINDS])
ONLY = typer.Option("--only", help="Part; repeat for more. [default: all]")


app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.command()
def chaos(
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs, each with its own seed. [default: 100; fewer with --demo]"),
    ] = None,
    is_demo: Annotated[
        bool, typer.Option("--demo", help="Use the demo pair and recorded speech, not scripted models.")
    ] = False,
    only: Annotated[list[FaultKind] | None, ONLY] = None,
    logs: Logs = None,
    seed: Seed = 0,
    quick: Quick = False,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Kill, stop, disconnect and replace servers under running clients, and check each client's text.

    Servers are real processes with scripted models, whose text depends on every sample and every earlier
    token. Every client's text must equal that of the target alone; otherwise the exit status is 1.
    """
    console = open_console()
    plans = [
        (kind, point)
        for kind, point in (kinds.QUICK if quick else kinds.EVERY)
        if not only or kind.name in only
    ]
    num = seeds or (len(plans) if quick or is_demo else SEEDS)
    scenarios = [faults.draw(seed + i, *plans[i % len(plans)], is_demo=is_demo) for i in range(num)]
    with folder_of(logs) as folder:
        results = {"chaos": asyncio.run(faults.measure(scenarios, folder, console))}
        results["controls"] = asyncio.run(measure_controls(folder))
    for result in results.values():
        print_bars(result.bars, console)
    finish(results, console, json=json, check=check, models=demo.MODELS if is_demo else SCRIPTED_MODELS)


@app.command("promises")
def keep_promises(
    only: Annotated[list[Promise] | None, ONLY] = None,
    seed: Seed = 0,
    quick: Quick = False,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure promises to clients that leave, flood, do not read or send bombs, and under faults.

    Exits with 1 if a text is wrong or a promise could not be measured.
    """
    freeze_loaded()  # a garbage collection of loaded modules would count as a server's delay
    console = open_console()
    parts = {name: PROMISES[name] for name in only or PROMISES}
    with folder_of(None) as folder:
        run, beside, together = Run(folder, seed, quick), *((WAITING, WIDE) if quick else ((), ()))
        results = asyncio.run(measure_parts(parts, run, console, beside=beside, together=together))
    finish(results, console, json=json, check=check)


@app.command("soak")
def soak_servers(seed: Seed = 0, quick: Quick = False, json: JsonFile = None, check: Check = False) -> None:
    """Run short sessions, of which many are left at any moment, then streams for minutes.

    Between the sessions memory, open files, threads, tasks, slots and places are counted. At last servers
    that leak 8 KiB a session are looked at in the same way, which must be noticed of each.
    """
    try:
        check_heap_is_counted()
    except SpecWhisperError as error:
        sys.exit(f"experiments.faults: {error}")
    console = open_console()
    with folder_of(None) as folder:
        result = asyncio.run(soak.measure(Run(folder, seed, quick), console))
    print_bars(result.bars, console)
    finish({"soak": result}, console, json=json, check=check)


@app.command("fleet")
def run_fleet(
    only: Annotated[list[FleetPart] | None, ONLY] = None,
    logs: Logs = None,
    seed: Seed = 0,
    quick: Quick = False,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Run crowds of clients against several servers, and compare each text with that of one target's weights.

    Exits with 1 if a session failed without need.
    """
    console = open_console()
    parts = {name: fleet.PARTS[name] for name in only or fleet.PARTS}
    with folder_of(logs) as folder:
        results = asyncio.run(measure_parts(parts, Run(folder, seed, quick), console))
    finish(results, console, json=json, check=check)


@contextmanager
def folder_of(logs: Path | None) -> Iterator[Path]:
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the servers
    with TemporaryDirectory() as temporary:
        folder = logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


if __name__ == "__main__":
    app()
