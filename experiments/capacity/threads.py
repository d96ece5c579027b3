"""``threads``: many threads on one ``SpeculativeWhisper`` against one thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import track
from rich.table import Table

from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.program import Audio, Draft, Program, Rounds, Target, program
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import ratio_of_medians, spread
from specwhisper import SpeculativeWhisper
from specwhisper.model.threads import num_threads as threads_of_model
from specwhisper.types import SAMPLE_RATE

SHORTEST_S, LONGEST_S = 1.0, 5.0
NUM_SLOTS = 16  # shared by all threads


@dataclass(slots=True)
class Arm:
    """A number of threads: seconds per round, forward passes of the target, and texts that were wrong."""

    num_threads: int
    seconds: list[float] = field(default_factory=list)
    num_forwards: list[int] = field(default_factory=list)
    num_wrong: int = 0


@program
def threads(
    given: Program,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    num_threads: Annotated[int, typer.Option("--threads", min=2, help="Threads with a call each.")] = 16,
    num_recordings: Annotated[int, typer.Option("--recordings", min=2, help="Recordings of a round.")] = 200,
    rounds: Rounds = 3,
    audio: Audio = None,
) -> None:
    """Transcribe the same short recordings by one thread, one after the other, and by many threads at once.

    The recordings are cuts of 1 to 5 s of the bundled samples. Both arms use one ``SpeculativeWhisper``;
    which goes first is random in each round. Every text is compared with what one thread wrote beforehand.
    """
    random = np.random.default_rng(given.seed)
    if given.quick:
        num_recordings, rounds = min(num_recordings, 40), min(rounds, 2)
    pair = SpeculativeWhisper(draft, target, "cpu", batch_size=NUM_SLOTS)
    recordings = cuts(load_samples(audio), num_recordings, random)
    passes = count_passes(pair)
    right = transcribe_all(pair, recordings, 1)
    one, many = Arm(1), Arm(min(num_threads, num_recordings))
    for _ in track(range(rounds), console=given.console, transient=True):
        for arm in (one, many) if random.integers(2) else (many, one):
            passes.clear()
            started_s = time.perf_counter()
            texts = transcribe_all(pair, recordings, arm.num_threads)
            arm.seconds.append(time.perf_counter() - started_s)
            arm.num_forwards.append(len(passes))
            arm.num_wrong += sum(a != b for a, b in zip(texts, right, strict=True))
    ratio = ratio_of_medians(many.seconds, one.seconds, seed=given.seed)
    audio_s = sum(map(len, recordings)) / SAMPLE_RATE
    title = (
        f"{num_recordings} recordings ({audio_s:.0f} s, {len(set(right))} different texts), {rounds} rounds"
    )
    table = Table("threads", "seconds (quartiles)", "forward passes", "wrong texts", title=title)
    for arm in (one, many):
        forwards = f"{np.median(arm.num_forwards):.0f}"
        table.add_row(str(arm.num_threads), f"{spread(arm.seconds):.1f}", forwards, str(arm.num_wrong))
    given.console.print(table)
    num_wrong = one.num_wrong + many.num_wrong
    bars = [
        Bar("texts that differ from one thread's", num_wrong, 1, str(num_wrong)),
        Bar(f"time of {many.num_threads} threads over one after the other", ratio.high, 1.0, str(ratio)),
    ]
    figures = {
        "arms": [asdict(one), asdict(many)],
        "recordings": num_recordings,
        "slots": NUM_SLOTS,
        "model_threads": threads_of_model(),
    }
    wrong = [f"{num_wrong} texts differ from one thread's"] if num_wrong else []
    given.end({"target": target, "draft": draft}, figures, bars, wrong)


def count_passes(pair: SpeculativeWhisper) -> list[int]:
    """Return a list to which each forward pass of the target appends its number of sessions."""
    passes, score = list[int](), pair.final_model.score

    def counted(rows: Sequence[Any]) -> list[Any]:
        passes.append(len(rows))
        return score(rows)

    pair.final_model.score = counted  # type: ignore[method-assign]
    return passes


def cuts(samples: Sequence[Sample], count: int, random: np.random.Generator) -> list[NDArray[np.int16]]:
    """Cut pieces of random lengths from random places, as many from each recording."""
    found = []
    for number in range(count):
        pcm = np.frombuffer(samples[number % len(samples)].pcm, "<i2")
        length = min(len(pcm), int(random.uniform(SHORTEST_S, LONGEST_S) * SAMPLE_RATE))
        start = int(random.integers(len(pcm) - length + 1))
        found.append(pcm[start : start + length])
    return found


def transcribe_all(
    pair: SpeculativeWhisper, recordings: Sequence[NDArray[np.int16]], num_threads: int
) -> list[str]:
    """Transcribe each recording in a call of its own, by so many threads that begin at once."""
    together = threading.Barrier(num_threads)
    with ThreadPoolExecutor(num_threads, initializer=together.wait) as pool:
        return list(pool.map(lambda audio: pair.transcribe(audio, language="en").text, recordings))
