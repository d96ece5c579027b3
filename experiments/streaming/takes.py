"""Takes for live sessions: clean, noisy, with pauses, and minutes long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.common.audio.samples import Sample
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.scan import log_mel_max
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES, Mode

SNR_DB = 15.0
PAUSE_S = (1.5, 4.0)


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word and its end, in seconds of the take."""

    text: str
    end_s: float


@dataclass(frozen=True, slots=True)
class Take:
    """Audio of a live session; ``words`` are the target's text of the whole take with word times."""

    name: str
    pcm: bytes
    words: tuple[SpokenWord, ...]

    @property
    def duration_s(self) -> float:
        """Duration in seconds."""
        return len(self.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE


class Recorder:
    """Makes takes of recordings and transcribes them with word times."""

    def __init__(self, target: str, seed: int) -> None:
        checkpoint = load_checkpoint(target)
        model = WhisperModel(checkpoint, 1)
        self._engine = InlinePair(model, mode=Mode.TARGET_ONLY, max_new_tokens=checkpoint.max_new_tokens)
        self._num_mel_bins = checkpoint.num_mel_bins
        self._random = np.random.default_rng(seed)

    def clean(self, sample: Sample) -> Take:
        """Return an unchanged recording."""
        return self._take(f"clean {sample.name}", sample.pcm)

    def noisy(self, sample: Sample) -> Take:
        """Add white noise, 15 dB below the speech."""
        samples = _samples(sample.pcm)
        level = np.sqrt(np.mean(samples**2)) * 10 ** (-SNR_DB / 20)
        return self._take(f"noisy {sample.name}", _pcm(samples + self._random.normal(0, level, len(samples))))

    def paused(self, sample: Sample) -> Take:
        """Insert pauses of faint noise between sentences."""
        samples = _samples(sample.pcm)
        pieces: list[NDArray[np.float64]] = []
        start = 0
        for segment in self._transcribe(sample.pcm).segments:
            end = min(len(samples), int(segment.end_s * SAMPLE_RATE))
            pause = self._random.normal(0, 3.0, int(self._random.uniform(*PAUSE_S) * SAMPLE_RATE))
            pieces += [samples[start:end], pause]
            start = end
        return self._take(f"pauses {sample.name}", _pcm(np.concatenate([*pieces, samples[start:]])))

    def long(self, samples: list[Sample], duration_s: float) -> Take:
        """Repeat recordings up to a duration."""
        num_bytes = int(duration_s * SAMPLE_RATE) * BYTES_PER_SAMPLE
        once = b"".join(sample.pcm for sample in samples)
        pcm = (once * (num_bytes // len(once) + 1))[:num_bytes]
        return self._take(f"{duration_s / 60:.0f} minutes", pcm)

    def _take(self, name: str, pcm: bytes) -> Take:
        words = (
            SpokenWord(word.text, word.end_s)
            for segment in self._transcribe(pcm).segments
            for word in segment.words
        )
        return Take(name, pcm, tuple(words))

    def _transcribe(self, pcm: bytes) -> Transcription:
        maxima = log_mel_max([pcm]) if len(pcm) > WINDOW_SAMPLES * BYTES_PER_SAMPLE else {}
        options = DecodingOptions.greedy(language="en", word_timestamps=True, log_mel_max=maxima)
        return self._engine.transcribe([pcm], options)[0]


def _samples(pcm: bytes) -> NDArray[np.float64]:
    return np.frombuffer(pcm, "<i2").astype(np.float64)


def _pcm(samples: NDArray[np.float64]) -> bytes:
    return np.clip(np.rint(samples), -32768, 32767).astype("<i2").tobytes()
