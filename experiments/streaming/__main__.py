"""``python -m experiments.streaming``: live transcription, paced in real time."""

from __future__ import annotations

import sys
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.common.args import Audio, Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.report import open_console, print_bars, write_json
from experiments.common.samples import load_samples
from experiments.streaming.again import TargetAlone
from experiments.streaming.arms import ARMS, FULL, NO_RECALL, PLAIN, TARGET_ONLY, Stage, stage
from experiments.streaming.summary import Taken, bars, differences, facts, print_rows, rows_of
from experiments.streaming.takes import Recorder, Take
from specwhisper.errors import SpecWhisperError
from specwhisper.live import LiveOptions
from specwhisper.types import Mode

LONG_S = 300.0
LONG_ARMS = (FULL, TARGET_ONLY)
QUICK_ARMS = (FULL, NO_RECALL, TARGET_ONLY, PLAIN)
TOGETHER_S = 60.0


def benchmark(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    dtype: Annotated[str, typer.Option(help="Of the target: float32, bfloat16 or int8.")] = "float32",
    step_ms: Annotated[int, typer.Option(help="Speech between two decodings.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="How often each take is heard by each arm.")] = 2,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions at once, beside single ones.")] = 8,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Speak recordings to live servers: latency of first and final text, flicker, passes per step, drift.

    Each is heard as it is, noisy, with pauses, and all of them for five minutes; by our servers with and
    without recalling, with both policies, by the target alone, in one process, and by plain transformers with
    the same policy. Exits with 1 if a final text is not what the target alone writes in the same steps.
    """
    console = open_console()
    live = LiveOptions(step_ms=step_ms)
    try:
        takes, long = make_takes(target, audio, seed, quick=quick)
        with stage(target, draft, dtype) as servers:
            taken = measure(servers, takes, long, live, 1 if quick else rounds, seed, quick, console)
            if sessions > 1 and not quick:
                for arm, mode in ((FULL, Mode.FULL), (TARGET_ONLY, Mode.TARGET_ONLY)):
                    heard = servers.hear_together([long[1]] * sessions, live, mode)
                    taken += [Taken(0, arm, long[1], one, sessions) for one in heard]
        taken = heard_again(target, dtype, taken, live)
    except SpecWhisperError as error:
        sys.exit(f"experiments.streaming: {error}")
    rows = rows_of(taken)
    print_rows(rows, console)
    held_bars = bars(rows, step_s=step_ms / 1000, sessions=sessions)
    if json is not None:
        figures = {
            "step_ms": step_ms,
            "bars": [str(bar) for bar in held_bars],
            "differences": differences(taken),
            "takes": [facts(one) for one in taken],
        }
        write_json(json, models={"target": target, "draft": draft, "target_dtype": dtype}, figures=figures)
    all_hold = print_bars(held_bars, console) if check else True
    broken = differences(taken)
    for line in broken:
        console.print(f"DIFFERENT: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def make_takes(target: str, audio: Audio, seed: int, *, quick: bool) -> tuple[list[Take], list[Take]]:
    """Give the takes that every arm hears, and the long ones: five minutes, and one."""
    samples, recorder = load_samples(audio), Recorder(target, seed)
    if quick:
        return [recorder.clean(samples[0])], []
    short = [sample for sample in samples if sample.fits_one_window][:3]
    takes = [make(sample) for sample in short for make in (recorder.clean, recorder.noisy, recorder.paused)]
    return takes, [recorder.long(samples, LONG_S), recorder.long(samples, TOGETHER_S)]


def measure(
    servers: Stage,
    takes: list[Take],
    long: list[Take],
    live: LiveOptions,
    rounds: int,
    seed: int,
    quick: bool,
    console: Console,
) -> list[Taken]:
    """Warm up, then let every arm hear every take in every round, in random order."""
    random = np.random.default_rng(seed)
    arms = QUICK_ARMS if quick else ARMS
    plan = [(number, arm, take) for number in range(rounds) for take in takes for arm in arms]
    plan = [plan[i] for i in random.permutation(len(plan))]
    plan += [(0, arm, take) for take in long[:1] for arm in LONG_ARMS]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(plan))
        taken = []
        for number, arm, take in plan:
            progress.update(task, description=f"{arm}: {take.name}")
            taken.append(Taken(number, arm, take, servers.hear(arm, take, live)))
            progress.advance(task)
    return taken


def heard_again(target: str, dtype: str, taken: list[Taken], live: LiveOptions) -> list[Taken]:
    """Let the target alone hear what our servers with the first policy heard, in the same steps."""
    alone = TargetAlone(target, dtype)
    again = []
    for one in taken:
        text = alone.text(one.take, live, one.heard) if one.arm in (FULL, NO_RECALL) else None
        again.append(Taken(one.round, one.arm, one.take, one.heard, one.sessions, text))
    return again


if __name__ == "__main__":
    typer.run(benchmark)
