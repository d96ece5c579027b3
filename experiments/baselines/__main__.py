"""``python -m experiments.baselines``: time per token of transformers and of our modes, interleaved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.baselines.local import InOneProcess, Models, Transformers
from experiments.baselines.measurement import (
    ASSISTED,
    TRANSFORMERS,
    TRANSFORMERS_2_THREADS,
    Arm,
    Measurement,
    Taken,
    all_arms,
    differences,
    facts,
    schedule,
)
from experiments.baselines.replayed import Replay, ReplayInOneProcess, recorded_replay, replay_servers
from experiments.baselines.service import Service
from experiments.baselines.summary import bars, print_table, replay_bars, summarise
from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Check, Draft, Gamma, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.common.replay.options import Dtype
from experiments.common.servers.processes import Worker, first_two_cores, on_cores, running_server
from specwhisper.errors import SpecWhisperError
from specwhisper.types import Mode

QUICK_ROUNDS = 3
Transcribe = Callable[[Sample, Arm], Measurement]


def benchmark(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    assistant: Annotated[
        str, typer.Option(help="Draft of transformers' assisted generation: same encoder and vocabulary.")
    ] = "demo-draft-distil",
    gamma: Gamma = None,
    shape: Annotated[
        str | None,
        typer.Option(help="Replay the pair at the cost of this shape and of tiny: our modes only."),
    ] = None,
    dtype: Dtype = "float32",
    audio: Audio = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often every arm transcribes every recording.")] = 7,
    two_threads: Annotated[
        bool,
        typer.Option("--two-threads", help="Also run transformers on both cores; not for busy machines."),
    ] = False,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Time per token of transformers, of its assisted generation and of our five modes.

    Every process is pinned: the target server, transformers and one-process to the first core, the draft
    server and this client to the second, each with one thread. Exits with 1 if any of our texts differs.
    """
    console = open_console()
    models = Models(target, draft, assistant, gamma)
    try:
        samples = load_samples(audio)
        if quick:
            samples, rounds = [sample for sample in samples if sample.fits_one_window][:2], QUICK_ROUNDS
        with ExitStack() as stack:
            if shape is None:
                started = arms_of(models, two_threads=two_threads)
            else:
                replay = stack.enter_context(recorded_replay(models, samples, shape, dtype))
                started = replay_arms_of(models, replay)
            transcribe, arms, described = stack.enter_context(started)
            taken = measure(transcribe, arms, samples, rounds, seed, console)
    except SpecWhisperError as error:
        sys.exit(f"experiments.baselines: {error}")
    different, summaries = differences(taken), summarise(taken)
    for timestamps in sorted({arm.timestamps for arm in arms}, reverse=True):
        print_table(summaries, timestamps=timestamps, differing=different, seed=seed, console=console)
    held_bars = bars(summaries, seed=seed) if shape is None else replay_bars(summaries, seed=seed)
    if json is not None:
        figures = {
            "cores": cores_used(),
            "gamma": gamma,
            "samples": {sample.name: sample.duration_s for sample in samples},
            "bars": [str(bar) for bar in held_bars],
            "differences": [line for lines in different.values() for line in lines],
            "measurements": [facts(one) for one in taken],
        }
        write_json(json, models=described, figures=figures)
    all_hold = print_bars(held_bars, console) if check else True
    # transformers' assisted generation promises no identical text; it is shown, not judged.
    broken = [line for arm, lines in different.items() if arm.system != ASSISTED for line in lines]
    for line in broken:
        console.print(f"DIFFERENT: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def cores_used() -> dict[str, list[int]]:
    """Return the cores of each process; on a single-core machine all share it."""
    first, second = first_two_cores()
    return {
        "target server": [first],
        "draft server": [second],
        "client": [second],
        TRANSFORMERS: [first],
        str(Mode.ONE_PROCESS): [first],
        TRANSFORMERS_2_THREADS: sorted({first, second}),
    }


@contextmanager
def arms_of(models: Models, *, two_threads: bool) -> Iterator[tuple[Transcribe, list[Arm], dict[str, Any]]]:
    """Start every process; give what transcribes, the arms it knows and what the models are."""
    cores = cores_used()
    with ExitStack() as stack:

        def worker(build: Callable[[Models], Any], system: str) -> Worker:
            started = Worker(partial(build, models), cores=cores[system])
            stack.callback(started.stop)
            return started

        one_process = worker(InOneProcess.of_pair, Mode.ONE_PROCESS)
        plain = {TRANSFORMERS: worker(Transformers, TRANSFORMERS)}
        plain[ASSISTED] = plain[TRANSFORMERS]
        if two_threads:
            plain[TRANSFORMERS_2_THREADS] = worker(Transformers, TRANSFORMERS_2_THREADS)
        described, special = one_process.call("describe"), one_process.call("special")
        target = stack.enter_context(
            running_server(
                "specwhisper_target_server", "--model", models.target, cores=cores["target server"]
            )
        )
        draft_arguments = ("--target", target, "--draft-model", models.draft)
        draft = stack.enter_context(
            running_server("specwhisper_draft_server", *draft_arguments, cores=cores["draft server"])
        )
        stack.enter_context(on_cores(cores["client"]))
        service = Service(draft, gamma=models.gamma, special=special)
        stack.callback(service.close)

        def transcribe(sample: Sample, arm: Arm) -> Measurement:
            measurement: Measurement
            if arm.system in plain:
                is_assisted = arm.system == ASSISTED
                measurement = plain[arm.system].call("transcribe", sample, arm.timestamps, is_assisted)
            elif arm.system == Mode.ONE_PROCESS:
                measurement = one_process.call("transcribe", sample, arm.timestamps)
            else:
                measurement = service.transcribe(sample, arm.timestamps, Mode(arm.system))
            return measurement

        yield transcribe, all_arms(two_threads=two_threads), described


@contextmanager
def replay_arms_of(models: Models, replay: Replay) -> Iterator[tuple[Transcribe, list[Arm], dict[str, Any]]]:
    """Do the same for a replay: transformers has no part in it."""
    cores = cores_used()
    with ExitStack() as stack:
        one_process = Worker(partial(ReplayInOneProcess, models, replay), cores=cores[Mode.ONE_PROCESS])
        stack.callback(one_process.stop)
        servers = replay_servers(
            replay, target_cores=cores["target server"], draft_cores=cores["draft server"]
        )
        draft = stack.enter_context(servers)
        stack.enter_context(on_cores(cores["client"]))
        service = Service(draft, gamma=models.gamma, special=one_process.call("special"))
        stack.callback(service.close)

        def transcribe(sample: Sample, arm: Arm) -> Measurement:
            if arm.system == Mode.ONE_PROCESS:
                measurement: Measurement = one_process.call("transcribe", sample, arm.timestamps)
                return measurement
            return service.transcribe(sample, arm.timestamps, Mode(arm.system))

        yield transcribe, [Arm(mode, True) for mode in Mode], replay.describe()


def measure(
    transcribe: Transcribe, arms: list[Arm], samples: list[Sample], rounds: int, seed: int, console: Console
) -> list[Taken]:
    """Warm up, then take every arm with every sample in every round."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    taken = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("warming up", total=len(arms) * (1 + rounds * len(samples)))
        for arm in arms:
            transcribe(samples[0], arm)
            progress.advance(task)
        for number, arm, sample in schedule(arms, samples, rounds, seed):
            progress.update(task, description=f"round {number + 1} of {rounds}: {arm}")
            taken.append(Taken(number, arm, sample.name, transcribe(sample, arm)))
            progress.advance(task)
    return taken


if __name__ == "__main__":
    typer.run(benchmark)
