"""Measure a grid of round trips and draft lengths, in every mode, interleaved."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.common.processes import on_cores
from experiments.common.replay.record import recorded
from experiments.common.report import machine_facts, version_facts
from experiments.common.samples import Sample
from experiments.latency.cells import CHOSEN, Cell, cells_of, schedule
from experiments.latency.lab import Lab, Pair, cores_used, open_lab
from experiments.latency.marking import Marks
from experiments.latency.networks.backends import Network, open_network
from experiments.latency.networks.conditions import Conditions
from experiments.latency.store import Run, Store
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode

OPTIONS = (DecodingOptions(language="en"),)
MAX_NETWORK_SHARE = 0.05  # of a core; a network that works harder is part of what is measured
MAX_TRIES = 3
NUM_CALIBRATING = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """What a sweep is to measure.

    Attributes
    ----------
    round_trips : in passes of the target alone, or in seconds where ``in_seconds``.
    """

    modes: Sequence[Mode]
    gammas: Sequence[int]
    round_trips: Sequence[float]
    in_seconds: bool
    repeats: int
    max_cores: int
    seed: int


def sweep(
    asked: Asked,
    samples: Sequence[Sample],
    conditions: Conditions,
    *,
    models: str,
    dtype: str,
    encodes: bool,
    drafts_next_window: bool,
    target: str,
    draft: str,
    network_name: str,
    store: Store,
    console: Console,
) -> list[str]:
    """Measure what is not in the store yet; give a line for each text that was not the target's."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        trace = folder / "trace.json"
        recorded(trace, samples, target=target, draft=draft, options=OPTIONS)
        pair = Pair(models, trace, dtype, encodes, drafts_next_window)
        cells = cells_of(asked.modes, asked.gammas, len(asked.round_trips), asked.max_cores)
        with on_cores(cores_used()["network"]):
            network = stack.enter_context(open_network(network_name))
        console.print(f"Starting {', '.join(pair.describe().values())} ...", highlight=False)
        lab = stack.enter_context(open_lab(pair, network, cells))
        expected = {sample.name: _alone(lab, sample) for sample in samples}
        step_s = median(marks.time_per_token_s for marks in expected.values())
        scale_s = 1.0 if asked.in_seconds else step_s
        begun = store.begin(
            {
                "models": pair.describe(),
                "conditions": conditions.facts(),
                "network": network.name,
                "asked": _plain(asked) | {"samples": [sample.name for sample in samples]},
                "step_s": step_s,
                "round_trips_s": [scale_s * round_trip for round_trip in asked.round_trips],
                "trace": trace.read_text(),
                "cores": cores_used(),
                "machine": machine_facts(),
                "versions": version_facts(),
            }
        )
        done = {(run.repeat, run.cell, run.sample) for run in begun.runs}
        planned = [
            (repeat, cell, sample)
            for repeat, cell in schedule(cells, asked.repeats, asked.seed)
            for sample in samples
        ]
        left = [
            (repeat, cell, sample)
            for repeat, cell, sample in planned
            if (repeat, cell, sample.name) not in done
        ]
        if done:
            console.print(
                f"{len(planned) - len(left)} of {len(planned)} runs are there already.", highlight=False
            )
        measuring = _Measuring(lab, network, conditions, begun.round_trips_s)
        different = []
        for repeat, cell, sample in _progress(left, console):
            facts, marks = measuring.run(cell, sample, seed=asked.seed + repeat)
            if marks.tokens != expected[sample.name].tokens:
                different.append(f"{cell}, {sample.name}, repeat {repeat}: the text is not the target's")
            facts["is_same"] = marks.tokens == expected[sample.name].tokens
            store.append(Run(repeat, cell, sample.name, facts))
        return different


def _alone(lab: Lab, sample: Sample) -> Marks:
    """Give what the target alone writes, at the speed it reaches when it is warm."""
    marks = [lab.transcribe(Cell(Mode.TARGET_ONLY, CHOSEN, 0), sample) for _ in range(NUM_CALIBRATING)]
    return min(marks, key=lambda one: one.time_per_token_s)


def _plain(asked: Asked) -> dict[str, Any]:
    """Give what makes it the same sweep; more repeats may be added to it."""
    plain = {**asdict(asked), "modes": [str(mode) for mode in asked.modes]}
    del plain["repeats"]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


def _progress(
    left: Sequence[tuple[int, Cell, Sample]], console: Console
) -> Iterator[tuple[int, Cell, Sample]]:
    """Go through what is left, and show how much of it there is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(left))
        for repeat, cell, sample in left:
            progress.update(task, description=f"repeat {repeat + 1}: {cell}")
            yield repeat, cell, sample
            progress.advance(task)


class _Measuring:
    """Runs cells, each under its round trip."""

    def __init__(
        self, lab: Lab, network: Network, conditions: Conditions, round_trips_s: Sequence[float]
    ) -> None:
        self._lab = lab
        self._network = network
        self._conditions = conditions
        self._round_trips_s = round_trips_s
        self._applied: int | None = None

    def run(self, cell: Cell, sample: Sample, *, seed: int) -> tuple[dict[str, Any], Marks]:
        """Transcribe, again where the network itself took too much of a core."""
        self._apply(cell.round_trip, seed)
        num_discarded = 0
        while True:
            cpu_s = self._network.cpu_s()
            marks = self._lab.transcribe(cell, sample)
            share = (self._network.cpu_s() - cpu_s) / marks.wall_s
            if share <= MAX_NETWORK_SHARE or num_discarded + 1 == MAX_TRIES:
                break
            num_discarded += 1
        facts = {
            "time_per_token_s": marks.time_per_token_s,
            "wall_s": marks.wall_s,
            "first_s": marks.first_s,
            "num_tokens": marks.statistics.num_committed,
            "network_share": share,
            "num_discarded": num_discarded,
            "load": os.getloadavg()[0],
            "statistics": asdict(marks.statistics),
        }
        return facts, marks

    def _apply(self, place: int, seed: int) -> None:
        if self._applied != place:
            told = {**self._conditions.facts(), "round_trip_s": self._round_trips_s[place]}
            self._network.apply(Conditions(**told), seed=seed)
            self._lab.warm_up()
            self._applied = place
