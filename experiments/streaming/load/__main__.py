"""``python -m experiments.streaming.load``: word errors of equal live streams against how many there are."""

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
from experiments.streaming.again import TargetAlone
from experiments.streaming.arms import FULL, stage
from experiments.streaming.load.errors import load_bars, load_facts, loads_of, print_loads
from experiments.streaming.load.simulated import Clips, print_simulated, simulate, simulated_bars
from experiments.streaming.summary import Taken, differences, facts
from experiments.streaming.takes import Recorder, Take
from specwhisper.errors import SpecWhisperError
from specwhisper.live import LiveOptions

QUICK_LOADS = "1,4"


def measure_load(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    dtype: Annotated[str, typer.Option(help="Of the target: float32, bfloat16 or int8.")] = "float32",
    sessions: Annotated[str, typer.Option(help="Equal sessions at once, with commas between.")] = "1,2,4,8",
    simulated: Annotated[
        bool,
        typer.Option("--simulated", help="In simulated time: steps take longer and longer, on no server."),
    ] = False,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Speak the same recording to one target in one session and in several at once, and compare the words.

    The steps that each session had are decoded once more by the target alone. Exits with 1 if that writes
    another text; in simulated time, if two sessions of the same steps write different texts.
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
        taken = speak(
            target, draft, dtype, make_takes(target, audio, seed, quick=quick), counts, live, console
        )
        taken = decoded_again(target, dtype, taken, live, console)
    except SpecWhisperError as error:
        sys.exit(f"experiments.streaming.load: {error}")
    loads = loads_of(taken, live)
    print_loads(loads, console)
    bars = load_bars(loads)
    if json is not None:
        figures = {"bars": [str(bar) for bar in bars], "loads": load_facts(loads)}
        write_json(json, models=models, figures=figures | {"takes": [facts(one) for one in taken]})
    all_hold = print_bars(bars, console) if check else True
    broken = differences(taken)
    for line in broken:
        console.print(f"DIFFERENT: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def make_takes(target: str, audio: Audio, seed: int, *, quick: bool) -> list[Take]:
    """Return the longest recording, and one with pauses; for a quick run the shortest."""
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
) -> list[Taken]:
    """Speak each take in so many sessions at once, begun one after the other."""
    taken = []
    with stage(target, draft, dtype) as servers, Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(counts) * len(takes))
        for count in counts:
            for take in takes:
                progress.update(task, description=f"{count} at once: {take.name}")
                taken += [
                    Taken(0, FULL, take, heard, count) for heard in servers.hear(FULL, take, live, count)
                ]
                progress.advance(task)
    return taken


def decoded_again(
    target: str, dtype: str, taken: list[Taken], live: LiveOptions, console: Console
) -> list[Taken]:
    """Let the target alone decode each session's steps once more."""
    alone = TargetAlone(target, dtype)
    with Progress(console=console, transient=True) as progress:
        return [
            replace(one, text_alone=alone.text(one.take, live, one.heard))
            for one in progress.track(taken, description="The same steps by the target alone")
        ]


if __name__ == "__main__":
    typer.run(measure_load)
