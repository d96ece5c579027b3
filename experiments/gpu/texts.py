"""Random recordings and texts: a replay whose draft has a given acceptance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.common.replay.trace import Decoding, Trace, window_digest
from specwhisper.audio.recording import Recording
from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import SAMPLE_RATE, AudioChunk

OPTIONS = DecodingOptions.greedy(language="en", timestamps=False)
RECORDING_SAMPLES = 10 * SAMPLE_RATE
MAX_CONTINUATION = 32  # tokens of a draft after it diverges


@dataclass(frozen=True, slots=True)
class Texts:
    """Recordings of 10 s of noise.

    Attributes
    ----------
    acceptance : share of positions at which the draft agrees with the target.
    num_tokens : tokens in a window; read speech has about 100.
    """

    num_recordings: int
    num_tokens: int
    acceptance: float
    seed: int

    def recording(self, number: int) -> bytes:
        """Return the noise."""
        samples = np.random.default_rng((self.seed, number)).normal(0, 3_000, RECORDING_SAMPLES)
        return samples.clip(-32_768, 32_767).astype("<i2").tobytes()

    def trace(self, vocabulary: Vocabulary) -> Trace:
        """Return a trace with random texts."""
        return Trace(
            target="random",
            draft="random",
            target_digest="",
            draft_digest="",
            vocabulary_digest=vocabulary.digest,
            source="",
            decodings=tuple(self._decoding(number, vocabulary) for number in range(self.num_recordings)),
        )

    def _decoding(self, number: int, vocabulary: Vocabulary) -> Decoding:
        random = np.random.default_rng((self.seed, number, 1))
        recording = Recording()
        recording.append(AudioChunk(0, self.recording(number), is_last=True))
        written = random.integers(0, vocabulary.end_of_text, self.num_tokens - 1).tolist()
        continuations = random.integers(
            0, vocabulary.end_of_text, (self.num_tokens, MAX_CONTINUATION)
        ).tolist()
        diverges = random.random(self.num_tokens) >= self.acceptance
        return Decoding(
            recording=str(number),
            start_frame=0,
            audio=window_digest(recording, 0),
            prompt=vocabulary.prompt(OPTIONS, OPTIONS.language),
            temperature=0.0,
            tokens=(*written, vocabulary.end_of_text),
            log_probs=(-0.1,) * self.num_tokens,
            margins=(1.0,) * self.num_tokens,
            divergences={i: tuple(continuations[i]) for i in np.flatnonzero(diverges).tolist()},
        )
