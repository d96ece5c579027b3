"""Random recordings and texts: a replay whose draft has a given acceptance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.capacity.clients import Spoken
from experiments.common.replay.trace import Decoding, Trace, window_digest
from specwhisper.audio.recording import Recording
from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import SAMPLE_RATE, AudioChunk

OPTIONS = DecodingOptions.greedy(language="en", timestamps=False)
RECORDING_S = 10.0
MAX_CONTINUATION = 32  # tokens of a draft after it diverges


def noise(seed: tuple[int, ...], length_s: float) -> bytes:
    """Return noise as canonical PCM."""
    samples = np.random.default_rng(seed).normal(0, 3_000, int(length_s * SAMPLE_RATE))
    return samples.clip(-32_768, 32_767).astype("<i2").tobytes()


def recording_of(pcm: bytes) -> Recording:
    """Return a complete recording."""
    recording = Recording()
    recording.append(AudioChunk(0, pcm, is_last=True))
    return recording


@dataclass(frozen=True, slots=True)
class Texts:
    """Recordings of 10 s of noise, each with a random text.

    Attributes
    ----------
    num_tokens : in a recording.
    acceptance : share of positions at which the draft agrees with the target.
    """

    num_recordings: int
    num_tokens: int
    acceptance: float
    seed: int

    def spoken(self, trace: Trace) -> list[Spoken]:
        """Return the recordings with the texts of a trace."""
        return [
            Spoken(each.recording, noise((self.seed, number), RECORDING_S), OPTIONS, [each.tokens])
            for number, each in enumerate(trace.decodings)
        ]

    def trace(self, vocabulary: Vocabulary) -> Trace:
        """Return a trace with the texts and the draft's divergences."""
        decodings = tuple(self._decoding(number, vocabulary) for number in range(self.num_recordings))
        return Trace("random", "random", "", "", vocabulary.digest, decodings)

    def _decoding(self, number: int, vocabulary: Vocabulary) -> Decoding:
        random = np.random.default_rng((self.seed, number, 1))
        end = vocabulary.end_of_text
        written = random.integers(0, end, self.num_tokens - 1).tolist()
        continuations = random.integers(0, end, (self.num_tokens, MAX_CONTINUATION)).tolist()
        diverges = random.random(self.num_tokens) >= self.acceptance
        return Decoding(
            recording=str(number),
            start_frame=0,
            audio=window_digest(recording_of(noise((self.seed, number), RECORDING_S)), 0),
            prompt=vocabulary.prompt(OPTIONS, OPTIONS.language),
            temperature=0.0,
            tokens=(*written, end),
            log_probs=(-0.1,) * self.num_tokens,
            margins=(1.0,) * self.num_tokens,
            divergences={i: tuple(continuations[i]) for i in np.flatnonzero(diverges).tolist()},
        )
