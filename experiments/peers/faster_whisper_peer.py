"""faster-whisper, which runs CTranslate2: greedy, one thread, one recording at a time or batched."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common.audio.samples import Sample
from experiments.peers.arms import Piece, Run, System
from experiments.peers.ours import NUM_BATCHED
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

GREEDY: dict[str, Any] = {
    "language": "en",
    "beam_size": 1,
    "temperature": 0.0,
    "condition_on_previous_text": False,
    "vad_filter": False,
    "compression_ratio_threshold": None,
    "log_prob_threshold": None,
    "no_speech_threshold": None,
}
NUM_PROMPT = 4  # start, language, task, no timestamps


class Multilingual:
    """A CTranslate2 model that knows languages.

    CTranslate2 judges by size: a vocabulary smaller than Whisper's own it takes for English-only, and
    faster-whisper then leaves language and task out of the prompt.
    """

    is_multilingual = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class FasterWhisperPeer:
    """A converted model of a multilingual checkpoint.

    Parameters
    ----------
    compute_type : CTranslate2's name of the precision.
    suppress : token ids that the checkpoint's generation config suppresses.
    end_of_text, num_tokens : of the vocabulary: the first special id, and how many there are.
    """

    def __init__(
        self, folder: Path, compute_type: str, suppress: Sequence[int], end_of_text: int, num_tokens: int
    ) -> None:
        from faster_whisper import BatchedInferencePipeline, WhisperModel

        self._model = WhisperModel(str(folder), device="cpu", compute_type=compute_type, cpu_threads=1)
        self._model.model = Multilingual(self._model.model)
        self._batched = BatchedInferencePipeline(self._model)
        self._suppress = list(suppress)
        self._specials = list(range(end_of_text, num_tokens))

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        """Transcribe recordings, one after the other or all at once."""
        started_s = time.perf_counter()
        transcribe = self._all if system is System.FASTER_WHISPER_BATCHED else self._each
        tokens = transcribe([_float(sample.pcm) for sample in samples], timestamps)
        return Run(time.perf_counter() - started_s, tokens)

    def decode(self, pieces: Sequence[Piece]) -> Run:
        """Write a given number of text tokens for each window."""
        written = []
        started_s = time.perf_counter()
        for piece in pieces:
            segments, _ = self._model.transcribe(
                _float(piece.pcm),
                without_timestamps=True,
                suppress_tokens=[*self._suppress, *self._specials],
                max_new_tokens=max_new_tokens(piece.num_tokens),
                **GREEDY,
            )
            written.append(tuple(token for segment in segments for token in segment.tokens))
        return Run(time.perf_counter() - started_s, tuple(written))

    def _each(
        self, recordings: Sequence[NDArray[np.float32]], timestamps: bool
    ) -> tuple[tuple[int, ...], ...]:
        written = []
        for samples in recordings:
            segments, _ = self._model.transcribe(
                samples, without_timestamps=not timestamps, suppress_tokens=list(self._suppress), **GREEDY
            )
            written.append(tuple(token for segment in segments for token in segment.tokens))
        return tuple(written)

    def _all(
        self, recordings: Sequence[NDArray[np.float32]], timestamps: bool
    ) -> tuple[tuple[int, ...], ...]:
        """Lay the recordings end to end and name the pieces of up to 30 s that go side by side."""
        starts = np.cumsum([0, *(len(samples) for samples in recordings)])
        clips = [
            {"start": at / SAMPLE_RATE, "end": min(at + WINDOW_SAMPLES, end) / SAMPLE_RATE}
            for start, end in pairwise(starts.tolist())
            for at in range(start, end, WINDOW_SAMPLES)
        ]
        segments, _ = self._batched.transcribe(
            np.concatenate(recordings),
            without_timestamps=not timestamps,
            suppress_tokens=list(self._suppress),
            clip_timestamps=clips,
            batch_size=NUM_BATCHED,
            **GREEDY,
        )
        written: list[list[int]] = [[] for _ in recordings]
        for segment in segments:
            # A segment's start is rounded to milliseconds.
            place = bisect_right(starts[1:-1].tolist(), segment.start * SAMPLE_RATE + SAMPLE_RATE / 1_000)
            written[place] += segment.tokens
        return tuple(map(tuple, written))


def max_new_tokens(num_tokens: int) -> int:
    """Return the length to request for so many tokens: CTranslate2 halves its argument.

    It writes min(length / 2, length - prompt) tokens, where length is the prompt and what is asked for.
    """
    return max(2 * num_tokens - NUM_PROMPT, num_tokens)


def _float(pcm: bytes) -> NDArray[np.float32]:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
