"""``ablate``: each mechanism off, alone, on a real pair and in simulated time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import Pool
from random import Random
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.common.audio.conditions import Condition, in_condition
from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.record import record
from experiments.common.replay.trace import Trace
from experiments.latency.ablation.measured import switchable_pair
from experiments.latency.ablation.mechanisms import MECHANISMS
from experiments.latency.ablation.simulated import PLACES
from experiments.latency.cells import parse_modes, parse_times
from experiments.latency.networks.backends import open_network
from experiments.latency.prediction.fit import acceptance_of, realigned_of
from experiments.latency.terms import OPTIONS
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.comparison import Ratio
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Case:
    """Where a mechanism is tried."""

    place: str
    condition: Condition
    mode: Mode
    round_trip_ms: float

    def __str__(self) -> str:
        return f"{self.place}; {self.condition}, {self.mode}, {self.round_trip_ms:g} ms"


@dataclass(frozen=True, slots=True)
class Job:
    """A simulation in a process of its own."""

    case: Case
    without: str | None
    seed: int
    trace: Trace
    vocabulary: Vocabulary

    def run(self) -> float:
        """Return seconds per token."""
        case, place = self.case, PLACES[self.case.place]
        mode = Mode.TARGET_ONLY if self.without == "" else case.mode
        return place.time_s(
            self.trace.decodings,
            self.vocabulary,
            mode,
            case.round_trip_ms / 1e3,
            self.seed,
            without=self.without or None,
        )


@dataclass
class Found:
    """Times of one case: by mechanism, ``None`` for none off, empty for the target alone."""

    times_s: dict[str | None, list[float]] = field(default_factory=dict)

    def over(self, without: str, reference: str | None = None) -> Ratio:
        """Return the time without a mechanism over that with all."""
        return Ratio.paired(self.times_s[without], self.times_s[reference])


def ablate(
    target: Target = "base",
    draft: Draft = "tiny.en",
    draft_dtype: Annotated[str, typer.Option(help="Numeric type of the draft's weights.")] = "int8",
    audio: Audio = None,
    rtt_ms: Annotated[str, typer.Option(help="Round trips in milliseconds.")] = "0,25,100,400",
    modes: Annotated[str, typer.Option(help="Modes with a draft.")] = "full,sync",
    measure: Annotated[bool, typer.Option(help="Measure the pair too; else only simulate.")] = True,
    repeats: Annotated[int, typer.Option(min=2, help="Seeds of simulations; repeats of measurements.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Switch each mechanism off, alone: what remains takes so many times as long.

    The pair is measured over an emulated link, a core each, and simulated at the costs of several machines with
    the text and the errors that it has in each condition. Every text is compared with the target's own.
    """
    console = open_console()
    try:
        if quick:
            rtt_ms, modes, repeats = "25", "full", 2
        round_trips, kinds = parse_times(rtt_ms, "--rtt-ms"), parse_modes(modes)
        samples = load_samples(audio)[: 2 if quick else None]
        random = np.random.default_rng(seed)
        heard = {condition: in_condition(samples, condition, random) for condition in Condition}
        vocabulary = load_checkpoint(target).vocabulary
        traces = {
            condition: record(each, target=target, draft=draft, options=OPTIONS)
            for condition, each in heard.items()
        }
        for condition, trace in traces.items():
            accepted, realigned = acceptance_of(trace.decodings), realigned_of(trace.decodings)
            console.print(f"{condition}: {accepted:.1%} accepted, {realigned:.0%} realigned", highlight=False)
        cases = [
            Case(place, condition, mode, ms)
            for place in PLACES
            for condition in heard
            for mode in kinds
            for ms in round_trips
        ]
        found = simulate(cases, traces, vocabulary, range(seed, seed + repeats), console)
        if measure:
            found |= measure_pair(
                (target, draft, draft_dtype), heard, kinds, round_trips, repeats, seed, console
            )
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    print_found(found, console)
    if json is not None:
        write_json(
            json, models={"target": target, "draft": f"{draft} in {draft_dtype}"}, figures=facts(found)
        )


def simulate(
    cases: Sequence[Case],
    traces: dict[Condition, Trace],
    vocabulary: Vocabulary,
    seeds: Sequence[int],
    console: Console,
) -> dict[Case, Found]:
    """Simulate every case with all mechanisms, without each of them, and without a draft."""
    found = {case: Found() for case in cases}
    jobs = [
        Job(case, without, seed, traces[case.condition], vocabulary)
        for seed in seeds
        for case in cases
        for without in (None, "", *MECHANISMS)
    ]
    with Pool() as pool:
        times_s = track(pool.imap(Job.run, jobs), "simulating", len(jobs), console=console, transient=True)
        for job, time_s in zip(jobs, times_s, strict=True):
            found[job.case].times_s.setdefault(job.without, []).append(time_s)
    return found


def measure_pair(
    models: tuple[str, str, str],
    heard: dict[Condition, list[Sample]],
    modes: Sequence[Mode],
    round_trips: Sequence[float],
    repeats: int,
    seed: int,
    console: Console,
) -> dict[Case, Found]:
    """Measure every case; within a round trip, all arms in an order that each repeat shuffles."""
    found = {
        Case(MEASURED, condition, mode, ms): Found()
        for condition in heard
        for mode in modes
        for ms in round_trips
    }
    random = Random(seed)
    with ExitStack() as stack:
        pair = stack.enter_context(switchable_pair(*models, stack.enter_context(open_network("tun"))))
        pair.time_s(next(iter(heard.values())), Mode.FULL)  # the first sessions are slower
        for repeat in track(range(repeats), "measuring", console=console, transient=True):
            for ms in random.sample(list(round_trips), len(round_trips)):
                pair.connect(ms / 1e3, seed + repeat)
                here = [case for case in found if case.round_trip_ms == ms]
                arms = [(case, without) for case in here for without in (None, "", *MECHANISMS)]
                for case, without in random.sample(arms, len(arms)):
                    mode = Mode.TARGET_ONLY if without == "" else case.mode
                    time_s = pair.time_s(heard[case.condition], mode, without=without or None)
                    found[case].times_s.setdefault(without, []).append(time_s)
    return found


def print_found(found: dict[Case, Found], console: Console) -> None:
    """Print a table of each place: a row per mechanism, a column per case."""
    for place in dict.fromkeys(case.place for case in found):
        cases = [case for case in found if case.place == place]
        table = Table(title=f"{place}: time per token without a mechanism", title_justify="left")
        for name in (
            "without",
            "lines",
            *(f"{case.condition}\n{case.mode}\n{case.round_trip_ms:g} ms" for case in cases),
        ):
            table.add_column(name, justify="right")
        table.add_row(
            "(over target-only)", "", *(f"{found[case].over(None, '').value:.2f}" for case in cases)
        )  # type: ignore[arg-type]
        for name, mechanism in MECHANISMS.items():
            ratios = (found[case].over(name) for case in cases)
            table.add_row(name, f"{mechanism.num_lines}", *(f"{ratio.value:.3f}" for ratio in ratios))
        console.print(table)


def facts(found: dict[Case, Found]) -> dict[str, object]:
    """Return all times and the ratios with their intervals."""
    return {
        "lines": {name: mechanism.num_lines for name, mechanism in MECHANISMS.items()},
        "cases": [
            {
                "case": str(case),
                "over_target_only": str(found[case].over(None, "")),  # type: ignore[arg-type]
                "without": {name: str(found[case].over(name)) for name in MECHANISMS},
                "times_s": {
                    name or ("all" if name is None else "target-only"): times
                    for name, times in found[case].times_s.items()
                },
            }
            for case in found
        ],
    }
