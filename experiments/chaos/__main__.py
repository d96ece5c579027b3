"""``python -m experiments.chaos``: faults of servers and networks change no client's text."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.chaos import demo
from experiments.chaos.controls import Control, run_controls
from experiments.chaos.runs import Outcome, run
from experiments.chaos.scenarios import EVERY, QUICK, Kind, Scenario, scenarios
from experiments.chaos.summary import bars, facts, pauses_of, print_kinds
from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json

SEEDS = 100
SCRIPTED_MODELS = {"target": "scripted", "draft": "scripted, 20 % wrong"}
DEMO_MODELS = {"target": demo.TARGET, "draft": demo.DRAFT}
SHOWN_LINES = 20


def chaos(
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs, each with its own seed. [default: 100; fewer with --demo]"),
    ] = None,
    is_demo: Annotated[
        bool, typer.Option("--demo", help="Use the demo pair and recorded speech, not scripted models.")
    ] = False,
    only: Annotated[
        list[Kind] | None, typer.Option(help="Kind of fault; repeat for more. [default: all]")
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder of the servers' logs. [default: not kept]")
    ] = None,
    seed: Seed = 0,
    quick: Quick = False,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Kill, stop, disconnect and replace servers under running clients, and check each client's text.

    Servers are real processes with scripted models, whose text depends on every sample and every earlier
    token. Every client's text must equal that of the target alone; otherwise the exit status is 1.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the servers
    console = open_console()
    chosen = QUICK if quick else EVERY
    plans = [plan for plan in chosen if only is None or plan[0] in only]
    num = seeds or (len(plans) if quick or is_demo else SEEDS)
    drawn = scenarios(num, seed, plans=plans, is_demo=is_demo)
    with TemporaryDirectory() as temporary:
        folder = logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        outcomes, tripped = asyncio.run(measure(drawn, folder, console))
    print_kinds(outcomes, console)
    checked_bars = [*bars(outcomes), control_bar(tripped)]
    broken = [f"{outcome.scenario}: {line}" for outcome in outcomes for line in outcome.all_violations]
    broken += [f"control: {control}" for control in tripped if not control.has_tripped]
    if json is not None:
        figures: dict[str, Any] = {
            "seeds": [scenario.seed for scenario in drawn],
            "bars": [str(bar) for bar in checked_bars],
            "pauses": {
                kind: asdict(pauses)
                for kind in Kind
                if (pauses := pauses_of(o for o in outcomes if o.scenario.kind is kind)) is not None
            },
            "controls": [asdict(control) | {"has_tripped": control.has_tripped} for control in tripped],
            "runs": [facts(outcome) for outcome in outcomes],
        }
        write_json(json, models=DEMO_MODELS if is_demo else SCRIPTED_MODELS, figures=figures)
    all_hold = print_bars(checked_bars, console) if check else True
    for line in broken[:SHOWN_LINES]:
        console.print(f"BROKEN: {line}", style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


async def measure(
    drawn: Sequence[Scenario], folder: Path, console: Console
) -> tuple[list[Outcome], list[Control]]:
    """Run all scenarios, then the negative controls."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    outcomes = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(drawn))
        for scenario in drawn:
            progress.update(task, description=str(scenario))
            outcomes.append(await run(scenario, folder))
            for line in outcomes[-1].all_violations:
                console.print(
                    f"{scenario}: {line}", style="red", highlight=False, markup=False, soft_wrap=True
                )
            progress.advance(task)
        progress.update(task, description="negative controls")
        return outcomes, await run_controls(folder)


def control_bar(tripped: Sequence[Control]) -> Bar:
    """Return the bar of the negative controls that did not trip."""
    num_quiet = sum(not control.has_tripped for control in tripped)
    return Bar("negative controls that did not trip", num_quiet, 1, f"{num_quiet} of {len(tripped)}")


if __name__ == "__main__":
    typer.run(chaos)
