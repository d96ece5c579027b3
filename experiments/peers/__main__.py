"""``python -m experiments.peers``: our one process beside other programs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers.utils import logging

from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Check, Draft, Gamma, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.common.models.published import PUBLISHED
from experiments.common.replay.record import recorded
from experiments.common.servers.processes import available_cores, on_cores
from experiments.peers.arms import Arm, Part, Piece, Taken, all_arms
from experiments.peers.prepared import DRAFT_SHAPE, pieces_of, prepare
from experiments.peers.summary import bars, print_table, summarise
from experiments.peers.texts import differences, word_error_rates
from experiments.peers.workers import Work, Workers
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary

PACKAGES = ("ctranslate2", "faster-whisper", "onnxruntime", "openai-whisper", "pywhispercpp", "tokenizers")
QUICK_ROUNDS, QUICK_SHAPE = 2, "base"


def peers(
    part: Annotated[
        list[Part] | None, typer.Option(help="Part to measure; repeat for more. [default: all]")
    ] = None,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    distilled: Annotated[
        str, typer.Option(help="Draft with the target's encoder: transformers' assistant, and ours.")
    ] = "demo-draft-distil",
    gamma: Gamma = None,
    shape: Annotated[str, typer.Option(help=f"One of {', '.join(PUBLISHED)}.")] = "small",
    shape_recordings: Annotated[int, typer.Option(min=1, help="How many, shortest first, on the shape.")] = 2,
    audio: Audio = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often every arm transcribes everything.")] = 5,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Time per token of our one process and of others that run Whisper, on the same weights and one core.

    On the demo pair all have its real weights. On a shape all have the same random weights: ours replays the
    demo pair (true cost, true acceptance), the others write as many tokens for each window as the demo target
    did, without the rules of timestamps. ``--quick`` takes base instead, float32 and no timestamps.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    console = open_console()
    parts = part or list(Part)
    if quick:
        rounds, shape, shape_recordings = QUICK_ROUNDS, QUICK_SHAPE, 1
    arms, missing = all_arms(parts, quick=quick)
    try:
        if shape not in PUBLISHED:
            raise InvalidRequest(f"There is no shape '{shape}': choose one of {', '.join(PUBLISHED)}.")
        every = load_samples(audio)
        every = [sample for sample in every if sample.fits_one_window][:1] if quick else every
        samples = {Part.DEMO: every, Part.SHAPE: every[:shape_recordings]}
        vocabulary = load_checkpoint(target).vocabulary
        with ExitStack() as stack:
            cores = available_cores()
            stack.enter_context(on_cores(cores[-1:]))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            console.print("Preparing weights ...")
            trace = folder / "trace.json"
            work = Work(
                samples=samples,
                weights={p: prepare(p, arms, folder, target=target, shape=shape, seed=seed) for p in parts},
                gamma=gamma,
                pieces=_recorded_pieces(trace, samples[Part.SHAPE], target, draft, vocabulary),
                trace=trace,
                target=target,
                draft=draft,
                distilled=distilled,
            )
            workers = Workers(work, cores[0])
            stack.callback(workers.stop)
            taken = measure(workers, arms, missing, rounds, seed, console)
    except SpecWhisperError as error:
        sys.exit(f"experiments.peers: {error}")
    durations_s = {p: sum(sample.duration_s for sample in of_part) for p, of_part in samples.items()}
    summaries = summarise(taken, durations_s, sum(piece.num_tokens for piece in work.pieces))
    rates = word_error_rates(summaries, samples[Part.DEMO], vocabulary)
    replayed = f"replay {shape} of {target}", f"replay {DRAFT_SHAPE} of {draft}"
    titles = {
        (Part.DEMO, True): "The demo pair, with timestamps",
        (Part.DEMO, False): "The demo pair, without timestamps",
        (Part.SHAPE, True): f"{shape} with random weights; ours: {' and '.join(replayed)}",
    }
    for (of_part, timestamps), title in titles.items():
        chosen = {
            arm: s for arm, s in summaries.items() if (arm.part, arm.timestamps) == (of_part, timestamps)
        }
        absent = {arm: r for arm, r in missing.items() if (arm.part, arm.timestamps) == (of_part, timestamps)}
        if chosen:
            print_table(chosen, absent, rates, title=title, seed=seed, console=console)
    held, open_claims = bars(summaries, seed=seed)
    broken, noted = differences(summaries, work.pieces)
    if json is not None:
        figures = {
            "peers": _versions(),
            "core": cores[0],
            "shape": dict(zip(("target", "draft"), replayed, strict=True)),
            "gamma": work.gamma,
            "samples": {p: {s.name: s.duration_s for s in of_part} for p, of_part in samples.items()},
            "piece_tokens": [piece.num_tokens for piece in work.pieces],
            "bars": [*map(str, held), *open_claims],
            "not_measured": {str(arm): reason for arm, reason in missing.items()},
            "word_error_rates": {str(arm): rate for arm, rate in rates.items()},
            "differences": [*broken, *noted],
            "measurements": [facts(one) for one in taken],
        }
        write_json(json, models=workers.models, figures=figures)
    all_hold = print_bars(held, console) if check else True
    _print_lines(open_claims if check else (), "yellow", console)
    _print_lines(noted, "yellow", console)
    _print_lines(broken, "red", console)
    sys.exit(0 if all_hold and not broken else 1)


def measure(
    workers: Workers, arms: list[Arm], missing: dict[Arm, str], rounds: int, seed: int, console: Console
) -> list[Taken]:
    """Warm every arm up, then take all of them in every round, in a new order; arms that fail are missing."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    taken, able = [], []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("warming up", total=len(arms) * (1 + rounds))
        for arm in arms:
            progress.update(task, description=f"warming up: {arm}")
            reason = workers.warm_up(arm)
            if reason is None:
                able.append(arm)
            else:
                missing[arm] = reason
            progress.advance(task)
        random = Random(seed)
        for number in range(rounds):
            for arm in random.sample(able, len(able)):
                progress.update(task, description=f"round {number + 1} of {rounds}: {arm}")
                taken.append(Taken(number, arm, workers.run(arm)))
                progress.advance(task)
    return taken


def facts(one: Taken) -> Mapping[str, Any]:
    """Return a run as plain values."""
    statistics = one.run.statistics
    return {
        "round": one.round,
        "part": one.arm.part,
        "system": one.arm.system,
        "precision": one.arm.precision,
        "timestamps": one.arm.timestamps,
        "wall_s": one.run.wall_s,
        "tokens": [len(tokens) for tokens in one.run.tokens],
        "statistics": None if statistics is None else asdict(statistics),
    }


def _recorded_pieces(
    trace: Path, samples: Sequence[Sample], target: str, draft: str, vocabulary: Vocabulary
) -> list[Piece]:
    """Record what the demo pair makes of the shape's recordings; give the windows that peers are given."""
    timed = DecodingOptions.greedy(language="en")
    written = recorded(trace, samples, target=target, draft=draft, options=(timed,))
    return pieces_of(written, samples, vocabulary.no_timestamps)


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _print_lines(lines: Sequence[str], style: str, console: Console) -> None:
    for line in lines:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(peers)
