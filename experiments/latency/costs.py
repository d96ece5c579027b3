"""Time forward passes and encodings of a pair, a core each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from experiments.common.audio.samples import Sample
from experiments.common.replay.trace import Decoding
from experiments.common.servers.processes import Worker
from experiments.latency.lab import DRAFT_DTYPE, Pair, cores_used
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.choosing import Row
from specwhisper.model.model import WhisperModel

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 24, 33, 65)  # tokens of a forward pass
NUM_HELD = 30  # tokens in the slot: the middle of an utterance
NUM_ROUNDS, NUM_ENCODINGS = 15, 3


@dataclass(frozen=True, slots=True)
class PairCosts:
    """Seconds of a pair's parts.

    Attributes
    ----------
    forward_s : the target's forward passes, as (tokens, seconds).
    draft_encode_s : the draft's encoding of a recording's first window, by recording.
    """

    forward_s: list[tuple[int, float]]
    draft_encode_s: dict[str, float]


class Timer:
    """Times a model; made in a process of its own.

    A draft is timed in its own vocabulary: the translation keeps what it has computed.
    """

    def __init__(self, name: str, *, dtype: str = "float32", cut_windows: bool = False) -> None:
        checkpoint = load_checkpoint(name, dtype=dtype, is_draft=True)
        self._num_tokens = checkpoint.vocabulary.end_of_text
        self._model = WhisperModel(checkpoint, 1, cut_windows=cut_windows)

    def encode_s(self, samples: Sequence[Sample]) -> dict[str, float]:
        return {
            sample.name: median(self._encode_s(sample) for _ in range(NUM_ENCODINGS)) for sample in samples
        }

    def forward_s(self, sample: Sample, decoding: Decoding, widths: Sequence[int]) -> list[float]:
        """Return the seconds of a forward pass over each number of tokens; the widths take turns."""
        self._encode_s(sample)
        words = [token for token in decoding.tokens if token < self._num_tokens]
        text = (words * (NUM_HELD + widths[-1]))[: NUM_HELD + widths[-1]]
        self._append(text, 0, NUM_HELD, decoding.prompt)
        held = len(decoding.prompt) + NUM_HELD
        times_s: dict[int, list[float]] = {width: [] for width in widths}
        for _ in range(NUM_ROUNDS):
            for width, found in times_s.items():
                started_s = time.perf_counter()
                self._append(text, NUM_HELD, width)
                found.append(time.perf_counter() - started_s)
                self._model.rollback(0, held)
        return [median(times_s[width]) for width in widths]

    def _encode_s(self, sample: Sample) -> float:
        recording = sample.recording
        started_s = time.perf_counter()
        self._model.encode(0, recording, 0)
        return time.perf_counter() - started_s

    def _append(self, text: Sequence[int], start: int, width: int, prompt: Sequence[int] = ()) -> None:
        """Feed some tokens of a text; all but the first are candidates."""
        fed, generated = text[start : start + width], text[: start + 1]
        self._model.score([Row(0, [*prompt, *fed], width - 1, generated, timestamps=False)])


def measure_costs(pair: Pair, samples: Sequence[Sample], decoding: Decoding) -> PairCosts:
    """Measure both models, one after the other; the decoding is of the first recording."""
    cores = cores_used()
    with Worker(partial(Timer, pair.target), cores=cores["target"]) as target:
        forward_s = target.call("forward_s", samples[0], decoding, WIDTHS)
    draft = partial(Timer, pair.draft, dtype=DRAFT_DTYPE, cut_windows=True)
    with Worker(draft, cores=cores["draft"]) as drafting:
        draft_encode_s = drafting.call("encode_s", samples)
    return PairCosts(list(zip(WIDTHS, forward_s, strict=True)), draft_encode_s)
