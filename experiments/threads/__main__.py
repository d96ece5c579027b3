"""``python -m experiments.threads``: many threads on one ``SpeculativeWhisper`` against one thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Annotated

import numpy as np
import typer
from rich.progress import track
from rich.table import Table
from transformers.utils import logging

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.bench.stats import ratio_of_medians, spread
from specwhisper import SpeculativeWhisper
from specwhisper.errors import SpecWhisperError
from specwhisper.model.threads import num_threads as threads_of_model
from specwhisper.types import SAMPLE_RATE

SHORTEST_S, LONGEST_S = 1.0, 5.0


@dataclass(slots=True)
class Arm:
    """One way to call: seconds per round, forward passes of the target, and texts that were wrong."""

    name: str
    seconds: list[float] = field(default_factory=list)
    num_forwards: list[int] = field(default_factory=list)
    num_wrong: int = 0


def threads(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    num_threads: Annotated[int, typer.Option("--threads", min=2, help="Threads with a call each.")] = 16,
    num_recordings: Annotated[int, typer.Option("--recordings", min=2, help="Recordings of a round.")] = 200,
    batch_size: Annotated[int, typer.Option(min=1, help="Slots, shared by all threads.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is repeated.")] = 3,
    audio: Audio = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Transcribe the same short recordings by one thread, one after the other, and by many threads at once.

    The recordings are cuts of 1 to 5 s of the bundled samples. Both arms use one ``SpeculativeWhisper``;
    which goes first is random in each round. Every text is compared with what one thread wrote beforehand.
    """
    logging.set_verbosity_error()
    console = open_console()
    random = np.random.default_rng(seed)
    num_recordings, rounds = (min(num_recordings, 40), min(rounds, 2)) if quick else (num_recordings, rounds)
    num_threads = min(num_threads, num_recordings)
    try:
        pair = SpeculativeWhisper(draft, target, "cpu", batch_size=batch_size)
        recordings = cuts([sample.pcm for sample in load_samples(audio)], num_recordings, random)
    except SpecWhisperError as error:
        sys.exit(f"experiments.threads: {error}")
    counter = ForwardCounter(pair)
    right = [pair.transcribe(recording, language="en").text for recording in recordings]
    one, many = Arm("one thread"), Arm(f"{num_threads} threads")
    for _ in track(range(rounds), console=console, transient=True):
        arms = [(one, 1), (many, num_threads)]
        for arm, count in arms if random.integers(2) else reversed(arms):
            counter.num_forwards = 0
            started_s = time.perf_counter()
            texts = transcribe_all(pair, recordings, count)
            arm.seconds.append(time.perf_counter() - started_s)
            arm.num_forwards.append(counter.num_forwards)
            arm.num_wrong += sum(a != b for a, b in zip(texts, right, strict=True))
    ratio = ratio_of_medians(many.seconds, one.seconds, seed=seed)
    audio_s = sum(map(len, recordings)) / SAMPLE_RATE
    what = f"{num_recordings} recordings ({audio_s:.0f} s, {len(set(right))} different texts)"
    table = Table(
        *("", "seconds (quartiles)", "forward passes", "wrong texts"),
        title=f"{what}, {rounds} rounds",
        caption=f"time of {num_threads} threads over one: {ratio}",
    )
    for arm in (one, many):
        forwards = f"{np.median(arm.num_forwards):.0f}"
        table.add_row(arm.name, f"{spread(arm.seconds):.1f}", forwards, str(arm.num_wrong))
    console.print(table)
    num_wrong = one.num_wrong + many.num_wrong
    bars = [
        Bar("texts that differ from one thread's", num_wrong, 1, str(num_wrong)),
        Bar(f"time of {num_threads} threads over one after the other", ratio.high, 1.0, str(ratio)),
    ]
    if json is not None:
        figures = {
            "arms": [asdict(one), asdict(many)],
            "recordings": num_recordings,
            "batch_size": batch_size,
            "model_threads": threads_of_model(),
            "bars": list(map(str, bars)),
        }
        write_json(json, models={"target": target, "draft": draft}, figures=figures)
    all_hold = print_bars(bars, console) if check else True
    sys.exit(0 if all_hold and not num_wrong else 1)


class ForwardCounter:
    """Counts the target's forward passes."""

    def __init__(self, pair: SpeculativeWhisper) -> None:
        self.num_forwards = 0
        self._score = pair.final_model.score
        pair.final_model.score = self._counted  # type: ignore[method-assign]

    def _counted(self, rows: Sequence) -> list:
        self.num_forwards += 1
        return self._score(rows)


def cuts(pcms: Sequence[bytes], count: int, random: np.random.Generator) -> list[np.ndarray]:
    """Cut pieces of random lengths from random places, as many from each recording."""
    found = []
    for number in range(count):
        samples = np.frombuffer(pcms[number % len(pcms)], "<i2")
        length = min(len(samples), int(random.uniform(SHORTEST_S, LONGEST_S) * SAMPLE_RATE))
        start = int(random.integers(len(samples) - length + 1))
        found.append(samples[start : start + length])
    return found


def transcribe_all(pair: SpeculativeWhisper, recordings: Sequence[np.ndarray], num_threads: int) -> list[str]:
    """Transcribe each recording in a call of its own, by so many threads that begin at once."""
    together = threading.Barrier(num_threads)
    with ThreadPoolExecutor(num_threads, initializer=together.wait) as pool:
        return list(pool.map(lambda audio: pair.transcribe(audio, language="en").text, recordings))


if __name__ == "__main__":
    typer.run(threads)
