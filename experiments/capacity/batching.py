"""``batching``: what a draft gains when recordings are transcribed side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import track
from rich.table import Table

from experiments.capacity.conclusion import conclude
from experiments.capacity.deep_pair import save_deep_pair
from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console
from experiments.common.bench.stats import ratio_of_medians
from specwhisper import SpeculativeConfig, SpeculativeWhisper, Transcription
from specwhisper.errors import InvalidRequest
from specwhisper.model.threads import num_threads
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

BATCHES, NUM_RECORDINGS = (1, 2, 4, 8), 8
MIN_RECORDING_S = 10
GAMMA = 4


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
    console = open_console()
    random = np.random.default_rng(seed)
    if (target is None) != (draft is None):
        raise InvalidRequest("Name both --target and --draft, or neither.")
    with TemporaryDirectory() as folder:
        names = (target, draft) if target and draft else save_deep_pair(Path(folder), seed)
        config = SpeculativeConfig(gamma=GAMMA, use_adaptive_gamma=False)
        pair = SpeculativeWhisper(names[1], names[0], "cpu", config, batch_size=NUM_RECORDINGS)
    max_tokens = None if target else 16 if quick else 32  # random weights end no window by themselves
    recordings = windows(load_samples(audio))

    def run(model: SpeculativeWhisper, batch_size: int) -> tuple[float, list[Transcription]]:
        started_s = time.perf_counter()
        texts = model.transcribe(recordings, batch_size=batch_size, language="en", max_new_tokens=max_tokens)
        return time.perf_counter() - started_s, texts

    rows = {n: Row(n) for n in ((1, NUM_RECORDINGS) if quick else BATCHES)}
    alone = pair.without_draft()
    run(pair, NUM_RECORDINGS)  # warm up
    for _ in track(range(2 if quick else rounds), console=console, transient=True):
        for n in random.permutation(list(rows)):
            row, found = rows[int(n)], dict[bool, list[Transcription]]()
            is_first = bool(random.integers(2))
            for is_alone in (is_first, not is_first):
                seconds, found[is_alone] = run(alone if is_alone else pair, int(n))
                (row.alone_s if is_alone else row.pair_s).append(seconds)
            counts = [text.stats for text in found[False] if text.stats]
            for more in counts[1:]:
                counts[0].add(more)
            row.tokens_per_forward = counts[0].tokens_per_forward
            row.acceptance_rate = counts[0].acceptance_rate
            row.num_different += sum(
                [s.tokens for s in a.segments] != [s.tokens for s in b.segments]
                for a, b in zip(found[True], found[False], strict=True)
            )
    named = {"target": target or "random weights", "draft": draft or "its first two layers"}
    table = Table(
        *("batch", "target alone, s", "pair, s", "pair over alone", "tokens per pass", "accepted", "text"),
        title=f"{named['target']} with {named['draft']}, gamma {GAMMA}",
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
    figures = {"rows": [asdict(row) for row in rows.values()], "threads": num_threads()}
    wrong = [
        f"batch {row.batch_size}: {row.num_different} texts" for row in rows.values() if row.num_different
    ]
    conclude(bars, figures, named, console, json=json, check=check, wrong=wrong)


def windows(samples: Sequence[Sample]) -> list[NDArray[np.int16]]:
    """Cut recordings into windows of 30 s and take the first that are not much shorter."""
    found = []
    for sample in samples:
        pcm = np.frombuffer(sample.pcm, "<i2")
        found += [pcm[i : i + WINDOW_SAMPLES] for i in range(0, len(pcm), WINDOW_SAMPLES)]
    long_enough = [window for window in found if len(window) >= MIN_RECORDING_S * SAMPLE_RATE]
    return (long_enough * NUM_RECORDINGS)[:NUM_RECORDINGS]
