"""``python -m experiments.streaming.load``: word error rate by the number of equal live streams."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Check, Draft, JsonFile, Quick, Seed, Target, parse_levels
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.streaming.arms import FULL, running_servers
from experiments.streaming.load.errors import load_bars, load_facts, loads_of, print_loads
from experiments.streaming.load.simulated import Clips, print_simulated, simulate, simulated_bars
from experiments.streaming.summary import Measured, differences, facts
from experiments.streaming.takes import Recorder, Take
from experiments.streaming.target_only import TargetOnly
from specwhisper.errors import SpecWhisperError
from specwhisper.live import LiveOptions

QUICK_LOADS = "1,4"


def measure_load(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    dtype: Annotated[
        str, typer.Option(help="Data type of the target: float32, bfloat16 or int8.")
    ] = "float32",
    sessions: Annotated[
        str, typer.Option(help="Numbers of equal concurrent sessions, separated by commas.")
    ] = "1,2,4,8",
    simulated: Annotated[
        bool,
        typer.Option("--simulated", help="Simulate slower and slower steps, without servers."),
    ] = False,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Send the same recording in one and in several concurrent sessions, and compare the words.

    The target alone decodes each session's steps again. Exits with 1 if it writes another text; in simulated
    time, if two sessions with the same steps write different texts.
    """
    console = open_console()
    live = LiveOptions()
    models = {"target": target, "draft": draft, "target_dtype": dtype}
    if simulated:
        samples, recorder = load_samples(audio), Recorder(target, seed)
        takes = [recorder.clean(sample) for sample in samples[: 1 if quick else None]]
        found = simulate(Clips(target, dtype), takes, live)
        print_simulated(found, console)
        bars = simulated_bars(found)
        if json is not None:
            write_json(json, models=models, figures=asdict(found) | {"bars": [str(bar) for bar in bars]})
        sys.exit(0 if found.num_ambiguous == 0 and (not check or print_bars(bars, console)) else 1)
    try:
        counts = sorted({1, *parse_levels(QUICK_LOADS if quick else sessions)})
        measured = speak(
            target, draft, dtype, make_takes(target, audio, seed, quick=quick), counts, live, console
        )
        measured = with_target_only_texts(target, dtype, measured, live, console)
    except SpecWhisperError as error:
        sys.exit(f"experiments.streaming.load: {error}")
    loads = loads_of(measured, live)
    print_loads(loads, console)
    bars = load_bars(loads)
    if json is not None:
        figures = {"bars": [str(bar) for bar in bars], "loads": load_facts(loads)}
        write_json(json, models=models, figures=figures | {"takes": [facts(one) for one in measured]})
    all_hold = print_bars(bars, console) if check else True
    broken = differences(measured)
    for line in broken:
        console.print(f"DIFFERENT: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def make_takes(target: str, audio: Audio, seed: int, *, quick: bool) -> list[Take]:
    """Return the longest recording and one with pauses; for a quick run the shortest."""
    samples, recorder = load_samples(audio), Recorder(target, seed)
    if quick:
        return [recorder.clean(samples[0])]
    return [recorder.clean(samples[-1]), recorder.paused(samples[len(samples) // 2])]


def speak(
    target: str,
    draft: str,
    dtype: str,
    takes: list[Take],
    counts: list[int],
    live: LiveOptions,
    console: Console,
) -> list[Measured]:
    """Send each take in several concurrent sessions that start one after the other."""
    measured = []
    with (
        running_servers(target, draft, dtype) as servers,
        Progress(console=console, transient=True) as progress,
    ):
        task = progress.add_task("", total=len(counts) * len(takes))
        for count in counts:
            for take in takes:
                progress.update(task, description=f"{count} sessions: {take.name}")
                measured += [
                    Measured(0, FULL, take, result, count)
                    for result in servers.run_sessions(FULL, take, live, count)
                ]
                progress.advance(task)
    return measured


def with_target_only_texts(
    target: str, dtype: str, measured: list[Measured], live: LiveOptions, console: Console
) -> list[Measured]:
    """Decode each session's steps again by the target alone."""
    target_only = TargetOnly(target, dtype)
    with Progress(console=console, transient=True) as progress:
        return [
            replace(one, target_only_text=target_only.text(one.take, live, one.result))
            for one in progress.track(measured, description="The same steps by the target alone")
        ]


if __name__ == "__main__":
    typer.run(measure_load)
