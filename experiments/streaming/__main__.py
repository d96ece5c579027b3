"""``python -m experiments.streaming``: live transcription, paced in real time."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.streaming.again import TargetAlone
from experiments.streaming.arms import ALIGN_ATT, ARMS, FULL, NO_RECALL, PLAIN, TARGET_ONLY, Stage, stage
from experiments.streaming.summary import Taken, bars, differences, facts, print_rows, rows_of
from experiments.streaming.takes import Recorder, Take
from specwhisper.errors import SpecWhisperError
from specwhisper.live import LiveOptions

LONG_S = 300.0
QUICK_ARMS = (FULL, NO_RECALL, TARGET_ONLY, PLAIN)
SESSIONS = (2, 4, 8)
TOGETHER_S = 60.0
CHECKED_OF_MANY = 1  # sessions of those at once that the target alone hears again


@dataclass(frozen=True, slots=True)
class Planned:
    """What an arm is to hear, by how many sessions at once."""

    round: int
    arm: str
    take: Take
    num_sessions: int = 1


def benchmark(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    dtype: Annotated[str, typer.Option(help="Of the target: float32, bfloat16 or int8.")] = "float32",
    step_ms: Annotated[int, typer.Option(help="Speech between two decodings.")] = 500,
    rounds: Annotated[
        int, typer.Option(min=0, help="How often each take is heard by each arm; 0: only sessions at once.")
    ] = 1,
    sessions: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Sessions at once; repeat for more, 1 for none. The most go on for minutes. "
            "[default: 2, 4 and 8]",
            show_default=False,
        ),
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Speak recordings to live servers: latency of first and final text, flicker, passes per step, drift.

    Each is heard as it is, noisy, with pauses, and all of them for five minutes; by our servers with and
    without recalling, with both policies, by the target alone, in one process, and by plain transformers with
    the same policy. Exits with 1 if a final text of ``full`` is not what the target alone writes in the same
    steps; of sessions at once, the first one's is looked at.
    """
    console = open_console()
    live = LiveOptions(step_ms=step_ms)
    counts = [] if quick else [count for count in sessions or SESSIONS if count > 1]
    try:
        takes, long = make_takes(target, audio, seed, quick=quick)
        with stage(target, draft, dtype) as servers:
            plan = planned(takes, long, 1 if quick else rounds, counts, seed, quick=quick)
            taken = measure(servers, plan, live, console)
        rows = rows_of(taken)
        held_bars = bars(rows, step_s=step_ms / 1000, sessions=max(counts, default=1))
        figures = {"step_ms": step_ms, "bars": [str(bar) for bar in held_bars]}
        models = {"target": target, "draft": draft, "target_dtype": dtype}
        print_rows(rows, console)  # and written now: to hear it all again takes minutes
        if json is not None:
            write_json(json, models=models, figures=figures | {"takes": [facts(one) for one in taken]})
        taken = heard_again(target, dtype, taken, live)
    except SpecWhisperError as error:
        sys.exit(f"experiments.streaming: {error}")
    if json is not None:
        figures |= {"differences": differences(taken), "takes": [facts(one) for one in taken]}
        write_json(json, models=models, figures=figures)
    all_hold = print_bars(held_bars, console) if check else True
    broken = differences(taken)
    for line in broken:
        console.print(f"DIFFERENT: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def make_takes(target: str, audio: Audio, seed: int, *, quick: bool) -> tuple[list[Take], list[Take]]:
    """Return the takes that every arm hears, and the long ones: five minutes, and one."""
    samples, recorder = load_samples(audio), Recorder(target, seed)
    if quick:
        return [recorder.clean(samples[0])], []
    short = [sample for sample in samples if sample.fits_one_window]
    takes = [recorder.clean(sample) for sample in short[:4]]
    takes += [recorder.noisy(sample) for sample in short[::3]]
    takes += [recorder.paused(sample) for sample in short[1::3]]
    return takes, [recorder.long(samples, LONG_S), recorder.long(samples, TOGETHER_S)]


def planned(
    takes: list[Take], long: list[Take], rounds: int, counts: list[int], seed: int, *, quick: bool
) -> list[Planned]:
    """Return who hears what: every arm every take in every round, in random order; then the long ones."""
    random = np.random.default_rng(seed)
    arms = QUICK_ARMS if quick else ARMS
    plan = [Planned(number, arm, take) for number in range(rounds) for take in takes for arm in arms]
    plan = [plan[i] for i in random.permutation(len(plan))]
    if rounds:
        plan += [Planned(0, FULL, take) for take in long[:1]]
    for count in counts:
        most = count == max(counts)
        plan.append(Planned(0, FULL, long[0 if most else 1], count))
        plan += [Planned(0, arm, long[1], count) for arm in (ALIGN_ATT, TARGET_ONLY)]
    return plan


def measure(servers: Stage, plan: list[Planned], live: LiveOptions, console: Console) -> list[Taken]:
    """Let every arm hear what is planned for it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(plan))
        taken = []
        for each in plan:
            progress.update(task, description=f"{each.arm}, {each.num_sessions} at once: {each.take.name}")
            all_heard = servers.hear(each.arm, each.take, live, each.num_sessions)
            taken += [Taken(each.round, each.arm, each.take, heard, each.num_sessions) for heard in all_heard]
            progress.advance(task)
    return taken


def heard_again(target: str, dtype: str, taken: list[Taken], live: LiveOptions) -> list[Taken]:
    """Let the target alone hear what ``full`` heard, in the same steps; of sessions at once, what one did."""
    alone = TargetAlone(target, dtype)
    again: list[Taken] = []
    for one in taken:
        num_heard = sum((one.arm, one.sessions, one.take) == (o.arm, o.sessions, o.take) for o in again)
        is_checked = one.arm == FULL and (one.sessions == 1 or num_heard < CHECKED_OF_MANY)
        text = alone.text(one.take, live, one.heard) if is_checked else None
        again.append(Taken(one.round, one.arm, one.take, one.heard, one.sessions, text))
    return again


if __name__ == "__main__":
    typer.run(benchmark)
