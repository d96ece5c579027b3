"""``python -m experiments.batching``: what a draft gains when recordings are transcribed side by side."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from rich.progress import track
from rich.table import Table
from transformers.utils import logging

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.bench.stats import ratio_of_medians
from experiments.common.models.deep_pair import save_deep_pair
from specwhisper import SpeculativeConfig, SpeculativeWhisper, Transcription
from specwhisper.errors import SpecWhisperError
from specwhisper.model.threads import num_threads
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

BATCHES = (1, 2, 4, 8)
NUM_RECORDINGS = 8
MIN_RECORDING_S = 10


@dataclass(slots=True)
class Row:
    """One batch size: seconds per round of the target alone and of the pair, over the same recordings."""

    batch_size: int
    alone_s: list[float] = field(default_factory=list)
    pair_s: list[float] = field(default_factory=list)
    tokens_per_forward: float = 0.0
    acceptance_rate: float = 0.0
    num_different: int = 0


def batching(
    target: Annotated[
        str | None, typer.Option(help="Target model. [default: whisper-small's decoder, random weights]")
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="Draft model. [default: the target's first layers]")
    ] = None,
    audio: Audio = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of a window. [default: 32 with random weights]")
    ] = None,
    gamma: Annotated[int, typer.Option(min=1, max=64, help="Draft tokens per block.")] = 4,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Blocks end where the draft is unsure, whatever gamma is.")
    ] = False,
    device: Annotated[str, typer.Option(help="As torch names it.")] = "cpu",
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is repeated.")] = 5,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Transcribe eight windows of speech one, two, four and eight at a time, in one process.

    The bundled pair is too small to gain anything in one process, so by default the target is as deep as
    whisper-small, with random weights, and its first two layers are the draft. The target alone and the pair
    take turns, in random order of batch sizes. Every text is compared.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    console = open_console()
    random = np.random.default_rng(seed)
    if (target is None) != (draft is None):
        sys.exit("experiments.batching: name both --target and --draft, or neither.")
    try:
        with TemporaryDirectory() as folder:
            names = (target, draft) if target and draft else save_deep_pair(Path(folder), seed)
            config = SpeculativeConfig(gamma=gamma, use_adaptive_gamma=adaptive)
            pair = SpeculativeWhisper(names[1], names[0], device, config, batch_size=NUM_RECORDINGS)
        max_tokens = max_tokens or (None if target else 16 if quick else 32)
        recordings = windows([sample.pcm for sample in load_samples(audio)])
        batches = (1, NUM_RECORDINGS) if quick else BATCHES
        rows = {n: Row(n) for n in batches}
        run(pair, recordings, NUM_RECORDINGS, max_tokens)  # warm up
        for _ in track(range(2 if quick else rounds), console=console, transient=True):
            for n in random.permutation(batches):
                measure(rows[int(n)], pair, recordings, max_tokens, alone_first=bool(random.integers(2)))
    except SpecWhisperError as error:
        sys.exit(f"experiments.batching: {error}")
    named = {"target": target or "random weights", "draft": draft or "its first two layers"}
    table = Table(
        *("batch", "target alone, s", "pair, s", "pair over alone", "tokens per pass", "accepted", "text"),
        title=f"{named['target']} with {named['draft']}, gamma {'adaptive' if adaptive else gamma}",
    )
    bars = []
    for row in rows.values():
        ratio = ratio_of_medians(row.pair_s, row.alone_s, seed=seed)
        table.add_row(
            str(row.batch_size),
            f"{np.median(row.alone_s):.2f}",
            f"{np.median(row.pair_s):.2f}",
            str(ratio),
            f"{row.tokens_per_forward:.2f}",
            f"{row.acceptance_rate:.0%}",
            "differs" if row.num_different else "same",
        )
        name = f"time of the pair over the target's, batch {row.batch_size}"
        bars.append(Bar(name, ratio.high, 1.0, str(ratio)))
    console.print(table)
    num_different = sum(row.num_different for row in rows.values())
    if json is not None:
        figures = {
            "rows": [asdict(row) for row in rows.values()],
            "threads": num_threads(),
            "bars": list(map(str, bars)),
        }
        write_json(json, models=named | {"device": device}, figures=figures)
    all_hold = print_bars(bars, console) if check else True
    sys.exit(0 if all_hold and not num_different else 1)


def windows(pcms: list[bytes]) -> list[np.ndarray]:
    """Cut recordings into windows of 30 s and take the first that are not much shorter."""
    found = []
    for pcm in pcms:
        samples = np.frombuffer(pcm, "<i2")
        found += [samples[i : i + WINDOW_SAMPLES] for i in range(0, len(samples), WINDOW_SAMPLES)]
    long_enough = [window for window in found if len(window) >= MIN_RECORDING_S * SAMPLE_RATE]
    return (long_enough * NUM_RECORDINGS)[:NUM_RECORDINGS]


def measure(
    row: Row,
    pair: SpeculativeWhisper,
    recordings: list[np.ndarray],
    max_tokens: int | None,
    *,
    alone_first: bool,
) -> None:
    """Transcribe everything in both ways."""
    texts: dict[bool, list[Transcription]] = {}
    for is_alone in (alone_first, not alone_first):
        model = pair.without_draft() if is_alone else pair
        elapsed_s, texts[is_alone] = run(model, recordings, row.batch_size, max_tokens)
        (row.alone_s if is_alone else row.pair_s).append(elapsed_s)
    counts = [text.stats for text in texts[False] if text.stats]
    for more in counts[1:]:
        counts[0].add(more)
    row.tokens_per_forward, row.acceptance_rate = counts[0].tokens_per_forward, counts[0].acceptance_rate
    row.num_different += sum(
        [s.tokens for s in a.segments] != [s.tokens for s in b.segments]
        for a, b in zip(texts[True], texts[False], strict=True)
    )


def run(
    model: SpeculativeWhisper, recordings: list[np.ndarray], batch_size: int, max_tokens: int | None
) -> tuple[float, list[Transcription]]:
    """Transcribe all, so many at a time."""
    started_s = time.perf_counter()
    texts = model.transcribe(recordings, batch_size=batch_size, language="en", max_new_tokens=max_tokens)
    return time.perf_counter() - started_s, texts


if __name__ == "__main__":
    typer.run(batching)
