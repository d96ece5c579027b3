"""What a session with word times costs those beside it: how long they wait for each forward pass."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from experiments.common.report import Bar
from experiments.common.samples import Sample
from experiments.common.stats import ratio_of_medians, spread
from specwhisper.options import DecodingOptions
from specwhisper.speculation.comparison import Ratio
from specwhisper.types import AudioChunk, Commit, Failed, Finished, Limits, Mode
from specwhisper.whisper.checkpoint import Checkpoint
from specwhisper.whisper.local import TargetEngine
from specwhisper.whisper.model import WhisperModel

NUM_NEIGHBOURS = 4
MOST_SLOWED = 1.2  # the bar
PLAIN = DecodingOptions(language="en")
TIMED = replace(PLAIN, word_timestamps=True)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """How long neighbours' forward passes took, waiting included, in rounds of a few seconds.

    Attributes
    ----------
    without_ms, beside_ms : 95th percentile of each round, in milliseconds: beside another session like them,
        and beside the same session with word times.
    worst_without_ms, worst_beside_ms : the 99th percentile likewise.
    num_aligned : windows whose words were found in the measured time.
    differences : recordings that had more than one text.
    """

    without_ms: tuple[float, ...]
    beside_ms: tuple[float, ...]
    worst_without_ms: tuple[float, ...]
    worst_beside_ms: tuple[float, ...]
    num_aligned: int
    differences: tuple[str, ...]
    seed: int

    @property
    def slowed(self) -> Ratio:
        """95th percentile with word times over the one without."""
        return ratio_of_medians(self.beside_ms, self.without_ms, seed=self.seed)

    @property
    def bar(self) -> Bar:
        """Hold the ratio of the medians against what is allowed."""
        name = "p95 of neighbours' forward passes, with a word-time session over without"
        return Bar(name, self.slowed.value, MOST_SLOWED, str(self.slowed))

    def __str__(self) -> str:
        return (
            f"{NUM_NEIGHBOURS} sessions beside one with word times ({self.num_aligned} windows): "
            f"p95 of their forward passes {spread(self.beside_ms):.1f} ms, "
            f"{spread(self.without_ms):.1f} ms without; p99 {spread(self.worst_beside_ms):.1f} ms, "
            f"{spread(self.worst_without_ms):.1f} ms without."
        )


def measure_neighbours(
    checkpoint: Checkpoint, samples: Sequence[Sample], *, rounds: int, period_s: float, seed: int
) -> Neighbours:
    """Let sessions transcribe recordings of one window over and over, on the target alone.

    Every window is encoded once, before it counts: what is measured is decoding.
    """
    model = WhisperModel(checkpoint, NUM_NEIGHBOURS + 1)
    model._encoder = Remembered(model._encoder)
    samples = [sample for sample in samples if sample.fits_one_window]
    return asyncio.run(_measure(model, samples, rounds, period_s, seed))


async def _measure(
    model: WhisperModel, samples: Sequence[Sample], rounds: int, period_s: float, seed: int
) -> Neighbours:
    engine = TargetEngine(model, limits=Limits(max_sessions=NUM_NEIGHBOURS + 1))
    random = Random(seed)
    texts: dict[str, set[tuple[int, ...]]] = {}
    taken: dict[bool, list[list[float]]] = {False: [], True: []}  # by whether words have times
    num_aligned = 0

    async def transcribe(name: str, sample: Sample, options: DecodingOptions) -> list[Commit]:
        commits: list[Commit] = []
        async with engine.session(name, Mode.TARGET_ONLY, options) as events:
            chunk = AudioChunk(0, sample.pcm, is_last=True)
            engine.thread.post(partial(engine.verifier.submit, name, chunk))
            while not isinstance(event := await events.get(), Finished):
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Commit):
                    commits.append(event)
        texts.setdefault(sample.name, set()).add(tuple(t for commit in commits for t in commit.tokens))
        return commits

    async def repeat(place: int, options: DecodingOptions, noted: list[Commit]) -> None:
        number = 0
        while True:
            sample = samples[(place + number) % len(samples)]
            noted += await transcribe(f"{place}-{number}", sample, options)
            number += 1

    for sample in samples:
        await transcribe(f"first {sample.name}", sample, TIMED)
    for _ in range(rounds):
        for has_words in random.sample([False, True], 2):
            noted: list[Commit] = []
            last: list[Commit] = []
            sessions = [asyncio.create_task(repeat(i, PLAIN, noted)) for i in range(NUM_NEIGHBOURS)]
            sessions.append(asyncio.create_task(repeat(NUM_NEIGHBOURS, TIMED if has_words else PLAIN, last)))
            done, _ = await asyncio.wait(sessions, timeout=period_s, return_when=asyncio.FIRST_COMPLETED)
            for session in sessions:
                session.cancel()
            await asyncio.gather(*sessions, return_exceptions=True)
            for session in done:
                session.result()  # its error
            taken[has_words].append(
                [(commit.timing.queue_ns + commit.timing.forward_ns) / 1e6 for commit in noted]
            )
            num_aligned += sum(commit.num_align_passes for commit in last)
    await engine.stop()
    quantiles = [
        tuple(float(np.quantile(each, share)) for each in taken[has_words])
        for share in (0.95, 0.99)
        for has_words in (False, True)
    ]
    differences = [f"{name}: {len(found)} texts" for name, found in texts.items() if len(found) > 1]
    return Neighbours(*quantiles, num_aligned, tuple(differences), seed)


class Remembered(nn.Module):
    """An encoder that encodes each window once."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self._encoder = encoder
        self._known: dict[bytes, Tensor] = {}

    def forward(self, features: Tensor) -> BaseModelOutput:
        """Encode windows, or remember what they were encoded as."""
        key = features.numpy().tobytes()
        if key not in self._known:
            self._known[key] = self._encoder(features).last_hidden_state
        return BaseModelOutput(last_hidden_state=self._known[key])
