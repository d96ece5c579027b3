"""``ablate``: each mechanism off, alone, on a real pair and in simulated time."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from experiments.common.audio.conditions import Condition
from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.trace import Trace
from experiments.latency.cells import Arm, parse_modes, parse_round_trips
from experiments.latency.lab import DraftDtype, Lab, Pair, Spoken, open_lab, spoken_in
from experiments.latency.link import open_link
from experiments.latency.mechanisms import MECHANISMS
from experiments.latency.places import PLACES, Job, run_all
from experiments.latency.prediction import acceptance_of, realigned_of
from specwhisper.errors import SpecWhisperError
from specwhisper.types import Mode
from specwhisper_client.cli.tuning.advice import Ratio

MEASURED = "measured"
ALL, TARGET_ONLY = "all", "target-only"  # arms in which no mechanism is off, and without a draft
ARMS = (ALL, TARGET_ONLY, *MECHANISMS)


@dataclass(frozen=True, slots=True)
class Case:
    place: str
    condition: Condition
    mode: Mode
    round_trip_ms: float

    def run_of(self, arm: str) -> tuple[Mode, str | None]:
        """Return the mode of an arm, and the mechanism that is off."""
        return Mode.TARGET_ONLY if arm == TARGET_ONLY else self.mode, arm if arm in MECHANISMS else None


# Seconds in each case, by arm: of a token if simulated, of all recordings if measured.
Found = dict[Case, dict[str, list[float]]]


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
    pair = Pair(target, draft, draft_dtype)
    try:
        if quick:
            rtt_ms, modes, repeats = "25", "full", 2
        round_trips, drafting = parse_round_trips(rtt_ms), parse_modes(modes)
        spoken = spoken_in(load_samples(audio)[: 2 if quick else None], list(Condition), seed)
        cases = [(condition, mode, ms) for condition in spoken for mode in drafting for ms in round_trips]
        traces = {condition: pair.record(samples) for condition, samples in spoken.items()}
        simulated = [Case(place, *case) for place in PLACES for case in cases]
        found = simulate(simulated, traces, range(seed, seed + repeats), console)
        if measure:
            measured = [Case(MEASURED, *case) for case in cases]
            found |= measure_pair(pair, measured, spoken, repeats, seed, console)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    facts = {
        "accepted": {str(condition): acceptance_of(trace.decodings) for condition, trace in traces.items()},
        "realigned": {str(condition): realigned_of(trace.decodings) for condition, trace in traces.items()},
        "lines": {name: mechanism.num_lines for name, mechanism in MECHANISMS.items()},
        "cases": [_facts(*each) for each in found.items()],
    }
    print_cases(facts, console)
    if json is not None:
        write_json(json, models=pair.facts(), figures=facts)


def simulate(
    cases: Sequence[Case], traces: Mapping[Condition, Trace], seeds: Sequence[int], console: Console
) -> Found:
    work = [(case, arm, seed) for seed in seeds for case in cases for arm in ARMS]
    jobs = []
    for case, arm, seed in work:
        mode, without = case.run_of(arm)
        jobs.append(Job(PLACES[case.place], case.condition, mode, case.round_trip_ms, seed, without))
    found: Found = {}
    for (case, arm, _), time_s in zip(work, run_all(jobs, traces, console), strict=True):
        found.setdefault(case, {}).setdefault(arm, []).append(time_s)
    return found


def measure_pair(
    pair: Pair, cases: Sequence[Case], spoken: Spoken, repeats: int, seed: int, console: Console
) -> Found:
    """Measure every case in every arm; each repeat shuffles the round trips, and the arms at each of them."""
    random, found = Random(seed), Found()
    round_trips = list(dict.fromkeys(case.round_trip_ms for case in cases))
    with ExitStack() as stack:
        link = stack.enter_context(open_link("tun"))
        lab = stack.enter_context(open_lab(pair, link))
        _time_s(lab, next(iter(spoken.values())), Mode.FULL)  # the first sessions are slower
        for _ in track(range(repeats), "measuring", console=console, transient=True):
            for ms in random.sample(round_trips, len(round_trips)):
                lab.connect(ms)
                runs = [(case, arm) for case in cases if case.round_trip_ms == ms for arm in ARMS]
                for case, arm in random.sample(runs, len(runs)):
                    mode, without = case.run_of(arm)
                    lab.switch_off(without)
                    time_s = _time_s(lab, spoken[case.condition], mode)
                    found.setdefault(case, {}).setdefault(arm, []).append(time_s)
    return found


def _time_s(lab: Lab, samples: Sequence[Sample], mode: Mode) -> float:
    return sum(lab.transcribe(Arm(mode), sample).decoding_s for sample in samples)


def _facts(case: Case, times_s: Mapping[str, list[float]]) -> dict[str, Any]:
    def over(arm: str, reference: str = ALL) -> list[float]:
        ratio = Ratio.paired(times_s[arm], times_s[reference])
        return [ratio.value, ratio.low, ratio.high]

    return {
        "place": case.place,
        "condition": case.condition,
        "mode": case.mode,
        "round_trip_ms": case.round_trip_ms,
        "over_target_only": over(ALL, TARGET_ONLY),
        "without": {name: over(name) for name in MECHANISMS},
        "times_s": times_s,
    }


def print_cases(facts: Mapping[str, Any], console: Console) -> None:
    """Print a row per case: what all gain, and the time without each mechanism over that with all."""
    table = Table(
        Column("place, speech", no_wrap=True),
        "over target-only",
        *(f"without {name}" for name in facts["lines"]),
    )
    for case in facts["cases"]:
        name = f"{case['place']}, {case['condition']}, {case['mode']}, {case['round_trip_ms']:g} ms"
        ratios = (f"{ratio[0]:.3f}" for ratio in case["without"].values())
        table.add_row(name, f"{case['over_target_only'][0]:.2f}", *ratios)
    console.print(table)
