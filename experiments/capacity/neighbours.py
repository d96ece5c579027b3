"""How a session with word times slows down the forward passes of other sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random

import numpy as np

from experiments.common.audio.samples import Sample
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import ratio_of_medians, spread
from experiments.common.models.caching_encoder import CachingEncoder
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.model.backends import load_encoder
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk, Commit, Failed, Finished, Limits, Mode

NUM_NEIGHBOURS = 4
MOST_SLOWED = 1.2  # the bar
PLAIN = DecodingOptions.greedy(language="en")
TIMED = replace(PLAIN, word_timestamps=True)


@dataclass(slots=True)
class Waits:
    """Waiting times of neighbours for their commits, in rounds of a few seconds.

    Attributes
    ----------
    p95_ms : 95th percentile of each round, in ms.
    longest_ms : longest wait of any neighbour during each window of the last session.
    """

    p95_ms: list[float] = field(default_factory=list)
    longest_ms: list[float] = field(default_factory=list)

    def add(self, windows: Sequence[Sequence[float]]) -> None:
        """Add a round's waits in seconds, by window of the last session; the last window is incomplete."""
        waits_s = [wait_s for window in windows for wait_s in window]
        self.p95_ms.append(1e3 * float(np.quantile(waits_s, 0.95)))
        self.longest_ms += [1e3 * max(window) for window in windows[:-1] if window]

    def __str__(self) -> str:
        return f"{spread(self.p95_ms):.1f} ms, longest of a window {spread(self.longest_ms or [0]):.0f} ms"


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Waits of sessions beside one with word times, and beside one without.

    Attributes
    ----------
    differences : recordings with more than one text.
    """

    beside: Waits
    without: Waits
    differences: tuple[str, ...]
    seed: int

    @property
    def bar(self) -> Bar:
        """The bar of the ratio of 95th percentiles."""
        slowed = ratio_of_medians(self.beside.p95_ms, self.without.p95_ms, seed=self.seed)
        name = "p95 of neighbours' forward passes, with a word-time session over without"
        return Bar(name, slowed.value, MOST_SLOWED, str(slowed))

    def __str__(self) -> str:
        return (
            f"{NUM_NEIGHBOURS} sessions beside one with word times: p95 of their forward passes "
            f"{self.beside}; beside the same without {self.without}."
        )


def measure_neighbours(
    checkpoint: Checkpoint, samples: Sequence[Sample], *, rounds: int, period_s: float, seed: int
) -> Neighbours:
    """Measure sessions that repeat recordings of one window with the target alone.

    The last session has the shortest recording and, in half of the rounds, word times. Every window is
    encoded before the measurement, so that only decoding is measured.
    """
    encoder = CachingEncoder(load_encoder(checkpoint))
    model = WhisperModel(checkpoint, NUM_NEIGHBOURS + 1, encoder=encoder)
    samples = [sample for sample in samples if sample.fits_one_window]
    return asyncio.run(_measure(model, samples, rounds, period_s, seed))


async def _measure(
    model: WhisperModel, samples: Sequence[Sample], rounds: int, period_s: float, seed: int
) -> Neighbours:
    engine = TargetEngine(model, limits=Limits(max_sessions=NUM_NEIGHBOURS + 1))
    random = Random(seed)
    texts: dict[str, set[tuple[int, ...]]] = {}
    waits = {has_words: Waits() for has_words in (False, True)}
    names = map(str, count())  # unique, so that late events of an ended session reach no other

    async def transcribe(
        sample: Sample, options: DecodingOptions, on_wait: Callable[[float], object] = lambda wait_s: None
    ) -> None:
        name = next(names)
        tokens: list[int] = []
        async with engine.session(name, Mode.TARGET_ONLY, options) as events:
            chunk = AudioChunk(0, sample.pcm, is_last=True)
            engine.thread.post(partial(engine.verifier.submit, name, chunk))
            last_s = None
            while not isinstance(event := await events.get(), Finished):
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Commit):
                    now_s = time.perf_counter()
                    if last_s is not None:
                        on_wait(now_s - last_s)
                    last_s = now_s
                    tokens += event.tokens
        texts.setdefault(sample.name, set()).add(tuple(tokens))

    async def neighbour(first: int, windows: list[list[float]]) -> None:
        for number in count(first):
            sample = samples[number % len(samples)]
            await transcribe(sample, PLAIN, lambda wait_s: windows[-1].append(wait_s))

    async def last_one(options: DecodingOptions, windows: list[list[float]]) -> None:
        shortest = min(samples, key=lambda sample: sample.duration_s)
        while True:
            await transcribe(shortest, options)
            windows.append([])

    for sample in samples:
        await transcribe(sample, TIMED)
    for _ in range(rounds):
        for has_words in random.sample([False, True], 2):
            windows: list[list[float]] = [[]]
            sessions = [asyncio.create_task(neighbour(i, windows)) for i in range(NUM_NEIGHBOURS)]
            sessions.append(asyncio.create_task(last_one(TIMED if has_words else PLAIN, windows)))
            failed, _ = await asyncio.wait(sessions, timeout=period_s, return_when=asyncio.FIRST_EXCEPTION)
            for session in sessions:
                session.cancel()
            await asyncio.gather(*sessions, return_exceptions=True)
            for session in failed:
                session.result()
            waits[has_words].add(windows)
    await engine.stop()
    differences = tuple(f"{name}: {len(found)} texts" for name, found in texts.items() if len(found) > 1)
    return Neighbours(waits[True], waits[False], differences, seed)
