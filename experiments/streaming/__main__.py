"""``python -m experiments.streaming``: live transcription in real time."""

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
from experiments.streaming.arms import (
    ARMS,
    FULL,
    NO_REUSE,
    PLAIN,
    TARGET_ONLY,
    Servers,
    running_servers,
)
from experiments.streaming.summary import Measured, bars, differences, facts, print_rows, rows_of
from experiments.streaming.takes import Recorder, Take
from experiments.streaming.target_only import TargetOnly
from specwhisper.errors import SpecWhisperError
from specwhisper.live import LiveOptions

LONG_S = 300.0
QUICK_ARMS = (FULL, NO_REUSE, TARGET_ONLY, PLAIN)
SESSIONS = (2, 4, 8)
TOGETHER_S = 60.0
CHECKED_OF_MANY = 1  # of concurrent sessions, those decoded again by the target alone


@dataclass(frozen=True, slots=True)
class Planned:
    """A take for an arm, with its number of concurrent sessions."""

    round: int
    arm: str
    take: Take
    num_sessions: int = 1


def benchmark(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    dtype: Annotated[
        str, typer.Option(help="Data type of the target: float32, bfloat16 or int8.")
    ] = "float32",
    cut_windows: Annotated[
        bool, typer.Option("--cut-windows", help="Encode only the audio that there is, in split arms.")
    ] = False,
    step_ms: Annotated[int, typer.Option(help="Audio between two steps, in ms.")] = 500,
    rounds: Annotated[
        int, typer.Option(min=0, help="Runs of each take by each arm; 0: concurrent sessions only.")
    ] = 1,
    sessions: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Concurrent sessions; repeat for more, 1 for none. The largest number runs for minutes. "
            "[default: 2, 4 and 8]",
            show_default=False,
        ),
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Send recordings to live servers: latency of first and final text, changes, forward passes, drift.

    Takes are clean, noisy, with pauses, and five minutes long. Arms are our servers with and
    without reuse of the hypothesis, target-only, one process, and plain transformers with the same policy.
    Exits with 1 if a final text of ``full`` differs from the target's own in the same steps; of concurrent
    sessions, the first one's is compared.
    """
    console = open_console()
    live = LiveOptions(step_ms=step_ms)
    counts = [] if quick else [count for count in sessions or SESSIONS if count > 1]
    try:
        takes, long = make_takes(target, audio, seed, quick=quick)
        with running_servers(target, draft, dtype, cut_windows=cut_windows) as servers:
            plan = planned(takes, long, 1 if quick else rounds, counts, seed, quick=quick)
            measured = measure(servers, plan, live, console)
        rows = rows_of(measured)
        checked_bars = bars(rows, step_s=step_ms / 1000, sessions=max(counts, default=1))
        figures = {"step_ms": step_ms, "bars": [str(bar) for bar in checked_bars]}
        models = {"target": target, "draft": draft, "target_dtype": dtype, "cut_windows": cut_windows}
        print_rows(rows, console)  # written now, since the comparison takes minutes
        if json is not None:
            write_json(json, models=models, figures=figures | {"takes": [facts(one) for one in measured]})
        measured = with_target_only_texts(target, dtype, measured, live, cut_windows=cut_windows)
    except SpecWhisperError as error:
        sys.exit(f"experiments.streaming: {error}")
    if json is not None:
        figures |= {"differences": differences(measured), "takes": [facts(one) for one in measured]}
        write_json(json, models=models, figures=figures)
    all_hold = print_bars(checked_bars, console) if check else True
    broken = differences(measured)
    for line in broken:
        console.print(f"DIFFERENT: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def make_takes(target: str, audio: Audio, seed: int, *, quick: bool) -> tuple[list[Take], list[Take]]:
    """Return the takes of every arm, and the long ones of five minutes and one."""
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
    """Return the plan: per round every take by every arm in random order, then the long takes."""
    random = np.random.default_rng(seed)
    arms = QUICK_ARMS if quick else ARMS
    plan = [Planned(number, arm, take) for number in range(rounds) for take in takes for arm in arms]
    plan = [plan[i] for i in random.permutation(len(plan))]
    if rounds:
        plan += [Planned(0, FULL, take) for take in long[:1]]
    for count in counts:
        most = count == max(counts)
        plan.append(Planned(0, FULL, long[0 if most else 1], count))
        plan.append(Planned(0, TARGET_ONLY, long[1], count))
    return plan


def measure(servers: Servers, plan: list[Planned], live: LiveOptions, console: Console) -> list[Measured]:
    """Run the plan."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(plan))
        measured = []
        for each in plan:
            progress.update(task, description=f"{each.arm}, {each.num_sessions} sessions: {each.take.name}")
            results = servers.run_sessions(each.arm, each.take, live, each.num_sessions)
            measured += [
                Measured(each.round, each.arm, each.take, result, each.num_sessions) for result in results
            ]
            progress.advance(task)
    return measured


def with_target_only_texts(
    target: str, dtype: str, measured: list[Measured], live: LiveOptions, *, cut_windows: bool
) -> list[Measured]:
    """Decode the steps of ``full`` again by the target alone; of concurrent sessions, one."""
    target_only = TargetOnly(target, dtype, cut_windows=cut_windows)
    compared: list[Measured] = []
    for one in measured:
        num_compared = sum((one.arm, one.sessions, one.take) == (o.arm, o.sessions, o.take) for o in compared)
        is_checked = one.arm == FULL and (one.sessions == 1 or num_compared < CHECKED_OF_MANY)
        text = target_only.text(one.take, live, one.result) if is_checked else None
        compared.append(Measured(one.round, one.arm, one.take, one.result, one.sessions, text))
    return compared


if __name__ == "__main__":
    typer.run(benchmark)
