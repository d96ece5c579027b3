"""``ablate``: each mechanism off, alone, on a real pair and in simulated time."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import Pool
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.common.audio.conditions import Condition
from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.trace import Trace
from experiments.latency.ablation.mechanisms import MECHANISMS
from experiments.latency.ablation.simulated import PLACES
from experiments.latency.cells import Arm, parse_modes, parse_times
from experiments.latency.commands.sweep import DraftDtype
from experiments.latency.grid import spoken_in
from experiments.latency.networks.backends import open_network
from experiments.latency.pair import Lab, Pair, open_lab, record_pair
from experiments.latency.prediction import acceptance_of, realigned_of
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.comparison import Ratio
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

MEASURED = "measured"
ALL, TARGET_ONLY = "all", "target-only"  # arms in which no mechanism is off, and without a draft
ARMS = (ALL, TARGET_ONLY, *MECHANISMS)


@dataclass(frozen=True, slots=True)
class Case:
    """Where the mechanisms are tried."""

    place: str
    condition: Condition
    mode: Mode
    round_trip_ms: float

    def run_of(self, arm: str) -> tuple[Mode, str | None]:
        """Return the mode of an arm, and the mechanism that is off."""
        return Mode.TARGET_ONLY if arm == TARGET_ONLY else self.mode, arm if arm in MECHANISMS else None


@dataclass
class Found:
    """Seconds in one case, by arm: of a token if simulated, of all recordings if measured."""

    times_s: dict[str, list[float]] = field(default_factory=dict)

    def over(self, arm: str, reference: str = ALL) -> Ratio:
        """Return the time of an arm over that of another one."""
        return Ratio.paired(self.times_s[arm], self.times_s[reference])


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulation in a process of its own."""

    case: Case
    arm: str
    seed: int
    trace: Trace
    vocabulary: Vocabulary

    def run(self) -> float:
        """Return seconds per token."""
        mode, without = self.case.run_of(self.arm)
        return PLACES[self.case.place].time_s(
            self.trace.decodings,
            self.vocabulary,
            mode,
            self.case.round_trip_ms / 1e3,
            self.seed,
            without=without,
        )


def ablate(
    target: Target = "base",
    draft: Draft = "tiny.en",
    draft_dtype: DraftDtype = "int8",
    audio: Audio = None,
    rtt_ms: Annotated[str, typer.Option(help="Round trips in milliseconds.")] = "0,25,100,400",
    modes: Annotated[str, typer.Option(help="Modes with a draft.")] = "full,sync",
    measure: Annotated[bool, typer.Option(help="Measure the pair too; else only simulate.")] = True,
    repeats: Annotated[int, typer.Option(min=2, help="Seeds of simulations; repeats of measurements.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Switch off one mechanism at a time, and measure how much longer decoding takes.

    The pair is measured over an emulated link, a core each. It is simulated at the costs of several machines,
    with the text and the errors that it has in each condition.
    """
    console = open_console()
    try:
        if quick:
            rtt_ms, modes, repeats = "25", "full", 2
        round_trips, drafting = parse_times(rtt_ms, "--rtt-ms"), parse_modes(modes)
        spoken = spoken_in(load_samples(audio)[: 2 if quick else None], list(Condition), seed)
        cases = [(condition, mode, ms) for condition in spoken for mode in drafting for ms in round_trips]
        traces = {
            condition: record_pair(Pair(target, draft, draft_dtype), each)
            for condition, each in spoken.items()
        }
        accepted = {str(condition): acceptance_of(trace.decodings) for condition, trace in traces.items()}
        realigned = {str(condition): realigned_of(trace.decodings) for condition, trace in traces.items()}
        for name, share in accepted.items():
            console.print(f"{name}: {share:.1%} accepted, {realigned[name]:.0%} realigned", highlight=False)
        simulated = [Case(place, *case) for place in PLACES for case in cases]
        found = simulate(simulated, traces, target, range(seed, seed + repeats), console)
        if measure:
            measured = [Case(MEASURED, *case) for case in cases]
            found |= measure_pair(Pair(target, draft, draft_dtype), measured, spoken, repeats, seed, console)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    for place in dict.fromkeys(case.place for case in found):
        print_place(place, {case: each for case, each in found.items() if case.place == place}, console)
    if json is not None:
        facts = {
            "accepted": accepted,
            "realigned": realigned,
            "lines": {name: mechanism.num_lines for name, mechanism in MECHANISMS.items()},
            "cases": [_facts(*each) for each in found.items()],
        }
        write_json(json, models=Pair(target, draft, draft_dtype).facts(), figures=facts)


def simulate(
    cases: Sequence[Case],
    traces: Mapping[Condition, Trace],
    target: str,
    seeds: Sequence[int],
    console: Console,
) -> dict[Case, Found]:
    """Simulate every case in every arm."""
    found, vocabulary = {case: Found() for case in cases}, load_checkpoint(target).vocabulary
    jobs = [
        Simulation(case, arm, seed, traces[case.condition], vocabulary)
        for seed in seeds
        for case in cases
        for arm in ARMS
    ]
    with Pool() as pool:
        times_s = pool.imap(Simulation.run, jobs)
        shown = track(times_s, "simulating", len(jobs), console=console, transient=True)
        for job, time_s in zip(jobs, shown, strict=True):
            found[job.case].times_s.setdefault(job.arm, []).append(time_s)
    return found


def measure_pair(
    pair: Pair,
    cases: Sequence[Case],
    spoken: Mapping[Condition, Sequence[Sample]],
    repeats: int,
    seed: int,
    console: Console,
) -> dict[Case, Found]:
    """Measure every case in every arm; each repeat shuffles the round trips, and the arms at each of them."""
    found, random = {case: Found() for case in cases}, Random(seed)
    round_trips = list(dict.fromkeys(case.round_trip_ms for case in cases))
    with ExitStack() as stack:
        network = stack.enter_context(open_network("tun"))
        lab = stack.enter_context(open_lab(pair, network))
        _time_s(lab, next(iter(spoken.values())), Mode.FULL)  # the first sessions are slower
        for repeat in track(range(repeats), "measuring", console=console, transient=True):
            for ms in random.sample(round_trips, len(round_trips)):
                lab.connect(ms, seed=seed + repeat)
                runs = [(case, arm) for case in cases if case.round_trip_ms == ms for arm in ARMS]
                for case, arm in random.sample(runs, len(runs)):
                    mode, without = case.run_of(arm)
                    lab.switch_off(without)
                    time_s = _time_s(lab, spoken[case.condition], mode)
                    found[case].times_s.setdefault(arm, []).append(time_s)
    return found


def _time_s(lab: Lab, samples: Sequence[Sample], mode: Mode) -> float:
    return sum(lab.transcribe(Arm(mode), sample).decoding_s for sample in samples)


def print_place(place: str, found: Mapping[Case, Found], console: Console) -> None:
    """Print a table: a row per mechanism, a column per case."""
    table = Table(title=f"{place}: time per token without a mechanism, over that with all")
    table.title_justify = "left"
    titles = (f"{case.condition}\n{case.mode}\n{case.round_trip_ms:g} ms" for case in found)
    for title in ("without", "lines", *titles):
        table.add_column(title, justify="right")
    gains = (each.over(ALL, TARGET_ONLY).value for each in found.values())
    table.add_row("(all, over target-only)", "", *(f"{gain:.2f}" for gain in gains))
    for name, mechanism in MECHANISMS.items():
        ratios = (each.over(name).value for each in found.values())
        table.add_row(name, f"{mechanism.num_lines}", *(f"{ratio:.3f}" for ratio in ratios))
    console.print(table)


def _interval(ratio: Ratio) -> list[float]:
    return [ratio.value, ratio.low, ratio.high]


def _facts(case: Case, found: Found) -> dict[str, Any]:
    return {
        "place": case.place,
        "condition": case.condition,
        "mode": case.mode,
        "round_trip_ms": case.round_trip_ms,
        "over_target_only": _interval(found.over(ALL, TARGET_ONLY)),
        "without": {name: _interval(found.over(name)) for name in MECHANISMS},
        "times_s": found.times_s,
    }
