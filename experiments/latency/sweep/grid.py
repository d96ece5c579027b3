"""Measure a grid of round trips, draft lengths and modes, interleaved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.common.audio.samples import Sample
from experiments.common.bench.report import machine_facts, version_facts
from experiments.common.replay.record import record
from experiments.common.replay.trace import Trace
from experiments.common.servers.processes import on_cores
from experiments.latency.cells import CHOSEN, Cell, schedule
from experiments.latency.networks.backends import open_network
from experiments.latency.networks.conditions import Conditions
from experiments.latency.sweep.cell_runner import CellRunner
from experiments.latency.sweep.forward_times import measure_forward_times
from experiments.latency.sweep.lab import Lab, cores_used, open_lab
from experiments.latency.sweep.models import Models, Pair
from experiments.latency.sweep.origin import Origin, describe_origins
from experiments.latency.sweep.request import SweepRequest, SweepSetup
from experiments.latency.sweep.store import Run, Store, Sweep
from experiments.latency.sweep.timed_client import TimedTokens
from experiments.latency.terms import OPTIONS
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.types import Mode

NUM_CALIBRATING = 3
Planned = tuple[int, Cell, Sample]  # repeat, cell, recording


def sweep(request: SweepRequest, setup: SweepSetup, store: Store, console: Console) -> None:
    """Measure the runs that the store does not have yet."""
    # Before open_lab pins this thread, after which the machine appears to have one core.
    origin, machine, cores = Origin.here(), machine_facts(), cores_used()
    with ExitStack() as stack:
        with on_cores(cores["network"]):
            network = stack.enter_context(open_network(setup.network))
        network.apply(setup.conditions)  # refuses unsupported conditions before a model is loaded
        network.apply(Conditions())
        trace = Path(stack.enter_context(TemporaryDirectory())) / "trace.json"
        models, samples = setup.models, setup.samples
        _record(trace, models, samples, request.seed)
        pair = Pair(models, trace)
        console.print(f"Starting {', '.join(pair.describe().values())} ...", highlight=False)
        forward_s = measure_forward_times(pair, cores["target server"])
        lab = stack.enter_context(open_lab(pair, network, request.cells()))
        target_only = {sample.name: _target_only(lab, sample) for sample in samples}
        vocabulary = load_checkpoint(Trace.load(trace).target).vocabulary
        lab.words = {name: vocabulary.decode(timed.tokens).split() for name, timed in target_only.items()}
        step_s = median(timed.time_per_token_s for timed in target_only.values())
        scale_s = 1.0 if request.in_seconds else step_s
        begun = store.begin(
            {
                "models": pair.describe(),
                "conditions": setup.conditions.facts(),
                "network": network.name,
                "request": request.facts() | {"samples": [sample.name for sample in samples]},
                "step_s": step_s,
                "forward_s": forward_s,
                "round_trips_s": [scale_s * round_trip for round_trip in request.round_trips],
                "trace": trace.read_text(),
                "texts": {name: list(timed.tokens) for name, timed in target_only.items()},
                "cores": cores,
                "machine": machine,
                "versions": version_facts(),
            }
        )
        left = left_of(begun, request, samples)
        _report_progress(begun, origin, len(left), console)
        runner = CellRunner(lab, network, setup.conditions, begun.round_trips_s)
        for repeat, cell, sample in _progress(left, console):
            facts = runner.run(cell, sample, target_only[sample.name].tokens, seed=request.seed + repeat)
            facts |= origin.facts() | {"measured": datetime.now(UTC).isoformat(timespec="seconds")}
            store.append(Run(repeat, cell, sample.name, facts))


def left_of(begun: Sweep, request: SweepRequest, samples: Sequence[Sample]) -> list[Planned]:
    """Return the runs to measure, in order: those without a run that counts."""
    done = begun.done
    return [
        (repeat, cell, sample)
        for repeat, cell in schedule(request.cells(), request.repeats, request.seed, request.set_repeats)
        for sample in samples
        if (repeat, cell, sample.name) not in done
    ]


def _report_progress(begun: Sweep, origin: Origin, num_left: int, console: Console) -> None:
    """Print how many runs exist, and whether other code or another machine measured them."""
    if not begun.runs:
        return
    console.print(f"{len(begun.done)} runs exist already; {num_left} are left.", highlight=False)
    origins = {run.origin for run in begun.runs}
    if num_left and origins != {origin}:
        console.print(
            f"They were measured at ({describe_origins(origins)}), and new runs are measured at "
            f"({describe_origins([origin])}): to keep them apart, choose another file.",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )


def _record(path: Path, models: Models, samples: Sequence[Sample], seed: int) -> None:
    """Write the pair's trace, with the errors that its draft is to make."""
    trace = record(samples, target=models.target, draft=models.draft, options=OPTIONS)
    if models.errors is not None:
        trace = replace(trace, decodings=models.errors.applied(trace.decodings, seed))
    trace.save(path)


def _target_only(lab: Lab, sample: Sample) -> TimedTokens:
    """Return the target's own text, at the best of a few warm runs."""
    timed = [lab.transcribe(Cell(Mode.TARGET_ONLY, CHOSEN, 0), sample) for _ in range(NUM_CALIBRATING)]
    return min(timed, key=lambda one: one.time_per_token_s)


def _progress(left: Sequence[Planned], console: Console) -> Iterator[Planned]:
    """Yield the runs to measure and show progress."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(left))
        for repeat, cell, sample in left:
            progress.update(task, description=f"repeat {repeat + 1}: {cell}")
            yield repeat, cell, sample
            progress.advance(task)
