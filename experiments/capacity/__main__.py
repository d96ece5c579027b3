"""``python -m experiments.capacity``: sessions of one target: target-only, split, or one per process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.capacity.arms import Arms
from experiments.capacity.gains import Gain, Rounds, bars, gain_of, sizes_needed, split_arms
from experiments.capacity.ladder import Ladder, memory_of_a_session
from experiments.capacity.load import Arm, Clients, Load, Outcome
from experiments.capacity.models import DEMO, DRAFT_SHAPE, Measured
from experiments.capacity.neighbours import measure_neighbours
from experiments.capacity.summary import facts, print_files, print_streams
from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import (
    Audio,
    Check,
    Draft,
    Gamma,
    JsonFile,
    Quick,
    Seed,
    Target,
    parse_levels,
)
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.common.models.published import PUBLISHED
from experiments.common.replay.options import Dtype
from experiments.common.replay.record import recorded
from experiments.common.servers.processes import available_cores
from specwhisper.errors import SpecWhisperError
from specwhisper.model.threads import limit_threads
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

LEVELS, QUICK_LEVELS = "1,2,4,8,16,32,64", "4"
ARMS = (Arm.TARGET_ONLY, Arm.FULL, Arm.SYNC, Arm.PER_CLIENT)
QUICK_ARMS = (Arm.TARGET_ONLY, Arm.FULL)
TIMED = DecodingOptions.greedy(language="en")
SHOWN_LINES = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of sessions, arms and rounds to measure."""

    levels: tuple[int, ...]
    arms: tuple[Arm, ...]
    rounds: int
    seed: int
    loads: Sequence[Load]
    max_lag_s: float

    def level(self, load: Load, arm: Arm, num_sessions: int, number: int = 0) -> Load:
        """Return the load of a level; each round has its own order, the same for all arms."""
        return replace(load, arm=arm, num_sessions=num_sessions, seed=self.seed + number)


def capacity(
    sessions: Annotated[
        str | None, typer.Option(metavar="N,N,...", help=f"Numbers of sessions. [default: {LEVELS}]")
    ] = None,
    mode: Annotated[
        list[Arm] | None, typer.Option("--modes", help="Arm; repeat for more. [default: all but pipelined]")
    ] = None,
    clients: Annotated[
        list[Clients] | None, typer.Option(help="Kind of clients; repeat for more. [default: both]")
    ] = None,
    shape: Annotated[
        str, typer.Option(help=f"Shape of the target: {DEMO}, or {', '.join(PUBLISHED)}.")
    ] = DEMO,
    dtype: Dtype = "float32",
    decoding_only: Annotated[
        bool,
        typer.Option(
            "--decoding-only",
            help="Replay, and encode only each slot's first window: all time is decoding.",
        ),
    ] = False,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    gamma: Gamma = None,
    audio: Audio = None,
    batch: Annotated[int, typer.Option(min=1, help="Number of sessions of the bars.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each throughput.")] = 3,
    period: Annotated[float, typer.Option(min=1, help="Duration of a throughput measurement, in s.")] = 15.0,
    live_period: Annotated[float, typer.Option(min=30, help="Duration of a level of streams, in s.")] = 60.0,
    max_lag: Annotated[
        float, typer.Option(min=0, help="Largest acceptable 95th percentile of a window's lag, in s.")
    ] = 1.0,
    max_processes: Annotated[int, typer.Option(min=1, help="Most processes with both models.")] = 8,
    target_cores: Annotated[int, typer.Option(min=1, help="Cores and threads of the target.")] = 1,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", dir_okay=False, help="File of the figure: PNG, SVG ...")
    ] = None,
    check: Check = False,
) -> None:
    """Add clients to one target until it no longer answers in time.

    Clients send whole recordings one after the other (throughput) or live audio (lag). They are sessions of
    a draft server in one generator process on the last core. Their draft costs nothing and proposes what the
    real one would, so that only the target, on the first core, is measured. ``process-per-client`` has target
    and draft, at their real cost, in a process per client on the target's core. With files on the demo pair
    it also measures, on all cores, how a session with word times slows down others.

    The target decodes windows of 30 s, or up to the end of a recording: the lag of a window runs from the
    moment its audio is complete to its last token. Every text is compared with what the target alone wrote.
    """
    console = open_console()
    try:
        levels = parse_levels(sessions or (QUICK_LEVELS if quick else LEVELS))
        arms = tuple(dict.fromkeys(mode or (QUICK_ARMS if quick else ARMS)))
        samples = load_samples(audio)
        if quick:
            samples, rounds = [sample for sample in samples if sample.fits_one_window][:2], 2
            period, live_period, max_processes = 5.0, 13.0, 1
        # Once all have started, each has a window due at least every 30 s.
        stagger_s = samples[0].duration_s / 2 if quick else WINDOW_SAMPLES / SAMPLE_RATE
        load = partial(Load, arm=arms[0], num_sessions=1, gamma=gamma, seed=seed)
        loads = [
            load(Clients.FILES, stagger_s=period / 2, period_s=period),
            load(Clients.STREAMS, stagger_s=stagger_s, period_s=live_period),
        ]
        plan = Plan(
            levels=levels,
            arms=arms,
            rounds=rounds,
            seed=seed,
            loads=[each for each in loads if each.clients in (clients or list(Clients))],
            max_lag_s=max_lag,
        )
        cores = available_cores()
        on = {"target": cores[:target_cores], "generator": cores[-1:]}
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            console.print("Recording the pair's text ...")
            limit_threads(1)  # two threads on one core would wait for each other
            measured = Measured(shape, dtype, folder / "trace.json", decoding_only)
            recorded(measured.trace, samples, target=target, draft=draft, options=[TIMED])
            started = Arms(
                measured,
                samples,
                folder,
                target_cores=on["target"],
                generator_cores=on["generator"],
                max_processes=max_processes,
            )
            stack.callback(started.close)
            rounds_taken, ladders = measure(started, plan, console)
            gains, times, slot_mb = compare(started, rounds_taken, seed)
            started.close()  # nothing else may run beside the neighbours
            neighbours = None
            if shape == DEMO and rounds_taken:
                console.print("Measuring the cost of word times for other sessions ...")
                neighbours = measure_neighbours(
                    measured.weights(), samples, rounds=rounds, period_s=period, seed=seed
                )
    except SpecWhisperError as error:
        sys.exit(f"experiments.capacity: {error}")
    cores = "one core" if target_cores == 1 else f"{target_cores} cores"
    title = f"{measured}, gamma {gamma or 'chosen'}, {cores} for the target"
    console.print(title, style="bold")
    if rounds_taken:
        print_files(rounds_taken, console)
    if any(ladder.outcomes for ladder in ladders):
        print_streams(ladders, console)
    memory = memory_lines(rounds_taken, ladders, slot_mb)
    beside = [] if neighbours is None else [str(neighbours)]
    for line in [*memory, *map(str, gains), *beside]:
        console.print(line, highlight=False, soft_wrap=True)
    every = [outcome for outcomes in rounds_taken.values() for outcome in outcomes]
    every += [outcome for ladder in ladders for outcome in ladder.outcomes]
    differences = sorted({line for each in every for line in (*each.differences, *each.failures)})
    at = min((gain.num_sessions for gain in gains), key=lambda number: abs(number - batch), default=0)
    checked_bars = bars([gain for gain in gains if gain.num_sessions == at])
    if neighbours is not None:
        differences += neighbours.differences
        checked_bars.append(neighbours.bar)
    if json is not None:
        figures: dict[str, Any] = {
            "cores": on,
            "gamma": gamma,
            "samples": {sample.name: sample.duration_s for sample in samples},
            "max_lag_s": max_lag,
            "most_held": {ladder.arm: ladder.most_held for ladder in ladders if ladder.outcomes},
            "stopped": {ladder.arm: ladder.stopped for ladder in ladders if ladder.stopped},
            "memory": memory,
            "pass_s": {f"{rows} x {width}": seconds for (rows, width), seconds in times.items()},
            "gains": [asdict(gain) for gain in gains],
            "neighbours": None if neighbours is None else asdict(neighbours),
            "bars": list(map(str, checked_bars)),
            "differences": differences,
            "outcomes": [facts(outcome) for outcome in every],
        }
        drafts = "free" if shape == DEMO else f"free; {DRAFT_SHAPE} in {Arm.PER_CLIENT}"
        models = {"target": str(measured), "draft": drafts, "text of": [target, draft]}
        write_json(json, models=models, figures=figures)
    if plot_file is not None:
        from experiments.capacity.figure import plot  # matplotlib takes a second to load

        plot(rounds_taken, ladders, title, plot_file)
    all_hold = print_bars(checked_bars, console) if check else True
    for line in differences[:SHOWN_LINES]:
        console.print(f"WRONG: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not differences else 1)


def measure(arms: Arms, plan: Plan, console: Console) -> tuple[Rounds, list[Ladder]]:
    """Measure each level: throughput in rounds with arms in random order, then streams."""
    random = Random(plan.seed)
    rounds: dict[tuple[Arm, int], list[Outcome]] = {}
    ladders = [Ladder(arm, plan.max_lag_s) for arm in plan.arms]
    every = [
        plan.level(load, arm, num_sessions, number)
        for num_sessions in plan.levels
        for load in plan.loads
        for number in range(plan.rounds if load.clients is Clients.FILES else 1)
        for arm in random.sample(plan.arms, len(plan.arms))
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=sum(load.duration_s for load in every))
        most, limit = arms.room() if Arm.PER_CLIENT in plan.arms else (0, "")
        for load in every:
            ladder = next(ladder for ladder in ladders if ladder.arm is load.arm)
            progress.update(task, description=f"{load.clients}, {load.num_sessions} sessions: {load.arm}")
            if load.arm is Arm.PER_CLIENT and load.num_sessions > most:
                ladder.stopped = ladder.stopped or f"not tried beyond {most} ({limit})"
            elif load.clients is Clients.FILES:
                rounds.setdefault((load.arm, load.num_sessions), []).append(arms.run(load))
            elif not ladder.stopped:
                ladder.climb(arms.run(load))
            progress.advance(task, load.duration_s)
    in_order = sorted(rounds, key=lambda key: (key[1], plan.arms.index(key[0])))
    return {key: rounds[key] for key in in_order}, ladders


def compare(
    arms: Arms, rounds: Rounds, seed: int
) -> tuple[list[Gain], dict[tuple[int, int], float], float | None]:
    """Return the gains of the split at each measured number of sessions."""
    numbers = [number for arm, number in rounds if arm is Arm.TARGET_ONLY]
    if not numbers:
        return [], {}, None
    held = rounds[Arm.TARGET_ONLY, numbers[-1]][0].mean_held
    sizes = sorted({size for number in numbers for size in sizes_needed(rounds, number)})
    times, bytes_per_slot = arms.pass_times(sizes, max(1, round(held)))
    gains = [
        gain_of(rounds, arm, number, times, seed=seed)
        for number in numbers
        for arm in split_arms(rounds, number)
    ]
    return gains, times, bytes_per_slot / 1e6


def memory_lines(rounds: Rounds, ladders: Sequence[Ladder], slot_mb: float | None) -> list[str]:
    """Describe the memory of a session on a server and in a process."""
    every = [outcome for outcomes in rounds.values() for outcome in outcomes]
    every += [outcome for ladder in ladders for outcome in ladder.outcomes]
    lines = []
    chosen: tuple[tuple[str, Callable[[Arm], bool]], ...] = (
        ("the target server", lambda arm: arm is not Arm.PER_CLIENT),
        (f"{Arm.PER_CLIENT}", lambda arm: arm is Arm.PER_CLIENT),
    )
    for name, is_of in chosen:
        session_mb = memory_of_a_session(outcome for outcome in every if is_of(outcome.load.arm))
        if session_mb is not None:
            lines.append(f"Memory of one more session, {name}: {session_mb:.1f} MB")
    if slot_mb is not None:
        lines.append(f"Memory of a slot, by its tensors: {slot_mb:.1f} MB")
    return lines


if __name__ == "__main__":
    typer.run(capacity)
