"""Measure a grid of round trips and draft lengths, in every mode, interleaved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.common.audio.samples import Sample
from experiments.common.bench.report import machine_facts, version_facts
from experiments.common.replay.record import recorded
from experiments.common.servers.processes import on_cores
from experiments.latency.cells import CHOSEN, Cell, schedule
from experiments.latency.networks.backends import open_network
from experiments.latency.networks.conditions import Conditions
from experiments.latency.sweep.cell_run import Measuring
from experiments.latency.sweep.lab import Lab, cores_used, open_lab
from experiments.latency.sweep.marking import Marks
from experiments.latency.sweep.models import Pair
from experiments.latency.sweep.origin import Origin, describe_origins
from experiments.latency.sweep.request import Asked, Setting
from experiments.latency.sweep.store import Run, Store, Sweep
from experiments.latency.terms import OPTIONS
from specwhisper.types import Mode

NUM_CALIBRATING = 3
Planned = tuple[int, Cell, Sample]  # with the number of its repeat


def sweep(asked: Asked, setting: Setting, store: Store, console: Console) -> None:
    """Measure what is not in the store yet."""
    # Before open_lab pins this thread, from which on the machine seems to have one core.
    origin, machine, cores = Origin.here(), machine_facts(), cores_used()
    with ExitStack() as stack:
        trace = Path(stack.enter_context(TemporaryDirectory())) / "trace.json"
        models, samples = setting.models, setting.samples
        recorded(trace, samples, target=models.target, draft=models.draft, options=OPTIONS)
        pair = Pair(models, trace)
        with on_cores(cores["network"]):
            network = stack.enter_context(open_network(setting.network))
        network.apply(setting.conditions)  # what it cannot do it refuses here, before anything is written
        network.apply(Conditions())
        console.print(f"Starting {', '.join(pair.describe().values())} ...", highlight=False)
        lab = stack.enter_context(open_lab(pair, network, asked.cells()))
        alone = {sample.name: _alone(lab, sample) for sample in samples}
        step_s = median(marks.time_per_token_s for marks in alone.values())
        scale_s = 1.0 if asked.in_seconds else step_s
        begun = store.begin(
            {
                "models": pair.describe(),
                "conditions": setting.conditions.facts(),
                "network": network.name,
                "asked": asked.facts() | {"samples": [sample.name for sample in samples]},
                "step_s": step_s,
                "round_trips_s": [scale_s * round_trip for round_trip in asked.round_trips],
                "trace": trace.read_text(),
                "texts": {name: list(marks.tokens) for name, marks in alone.items()},
                "cores": cores,
                "machine": machine,
                "versions": version_facts(),
            }
        )
        left = left_of(begun, asked, samples)
        _tell_begun(begun, origin, len(left), console)
        measuring = Measuring(lab, network, setting.conditions, begun.round_trips_s)
        for repeat, cell, sample in _progress(left, console):
            facts = measuring.run(cell, sample, alone[sample.name].tokens, seed=asked.seed + repeat)
            facts |= origin.facts() | {"measured": datetime.now(UTC).isoformat(timespec="seconds")}
            store.append(Run(repeat, cell, sample.name, facts))


def left_of(begun: Sweep, asked: Asked, samples: Sequence[Sample]) -> list[Planned]:
    """Give what is still to be measured, in its order: all of which there is no run that counts."""
    done = begun.done
    return [
        (repeat, cell, sample)
        for repeat, cell in schedule(asked.cells(), asked.repeats, asked.seed)
        for sample in samples
        if (repeat, cell, sample.name) not in done
    ]


def _tell_begun(begun: Sweep, origin: Origin, num_left: int, console: Console) -> None:
    """Say what is there already, and whether it comes from elsewhere."""
    if not begun.runs:
        return
    console.print(f"{len(begun.done)} runs are there already; {num_left} are left.", highlight=False)
    origins = {run.origin for run in begun.runs}
    if num_left and origins != {origin}:
        console.print(
            f"They come from elsewhere ({describe_origins(origins)}) than what is added now "
            f"({describe_origins([origin])}): to keep them apart, choose another file.",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )


def _alone(lab: Lab, sample: Sample) -> Marks:
    """Give what the target alone writes, at the speed it reaches when it is warm."""
    marks = [lab.transcribe(Cell(Mode.TARGET_ONLY, CHOSEN, 0), sample) for _ in range(NUM_CALIBRATING)]
    return min(marks, key=lambda one: one.time_per_token_s)


def _progress(left: Sequence[Planned], console: Console) -> Iterator[Planned]:
    """Go through what is left, and show how much of it there is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(left))
        for repeat, cell, sample in left:
            progress.update(task, description=f"repeat {repeat + 1}: {cell}")
            yield repeat, cell, sample
            progress.advance(task)
