"""A trace: the target's text and the draft's divergences of each window."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from specwhisper.audio.recording import Recording

Key = tuple[str, tuple[int, ...], float]  # window_digest, prompt, temperature


def num_equal(tokens: Sequence[int], others: Sequence[int]) -> int:
    """Return how many tokens two texts have in common at their beginning."""
    pairs = enumerate(zip(tokens, others, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(tokens), len(others)))


@dataclass(frozen=True)
class Decoding:
    """One decoding of a window by the target, and where its draft diverges.

    Attributes
    ----------
    recording, start_frame : recorded position; other recordings may contain the same window.
    audio : :func:`window_digest` of the window.
    prompt, temperature : prompt and temperature of the window.
    tokens : the target's tokens, with end-of-text.
    log_probs, margins : per token, as in :class:`specwhisper.model.choosing.Scores`.
    no_speech_prob : probability of no speech.
    divergences : the tokens that the draft writes after ``tokens`` up to a position, by position, where its
        first choice differs from the target's. At every other position it agrees.
    draft_log_probs, continuation_log_probs : log-probabilities of the draft's choice at each position, and
        of the tokens of each divergence. Without them every choice counts as certain.
    """

    recording: str
    start_frame: int
    audio: str
    prompt: tuple[int, ...]
    temperature: float
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    margins: tuple[float, ...]
    no_speech_prob: float | None = None
    divergences: dict[int, tuple[int, ...]] = field(default_factory=dict)
    draft_log_probs: tuple[float, ...] = ()
    continuation_log_probs: dict[int, tuple[float, ...]] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.audio, self.prompt, self.temperature

    def target_after_each(
        self, num_written: int, num_candidates: int
    ) -> tuple[list[int], list[float], list[float]]:
        """Return the target's choices after a text and each candidate, as :class:`Scores` has them.

        The choice after a rejected candidate is not used: any token will do.
        """
        last = len(self.tokens) - 1
        places = [min(num_written + i, last) for i in range(num_candidates + 1)]
        tokens = [self.tokens[i] for i in places]
        return tokens, [self.log_probs[i] for i in places], [self.margins[i] for i in places]

    def draft_after(self, written: Sequence[int]) -> tuple[int, float]:
        """Return the draft's token after a text, and its log-probability.

        After the end of the recorded tokens it repeats the last one, which costs time and is wrong.
        """
        agreed = num_equal(written, self.tokens)
        if agreed == len(written) and agreed not in self.divergences:
            index = min(agreed, len(self.tokens) - 1)
            return self.tokens[index], self.draft_log_probs[index] if self.draft_log_probs else 0.0
        continuation = self.divergences.get(agreed, self.tokens[-1:])
        log_probs = self.continuation_log_probs.get(agreed, (0.0,) * len(continuation))
        index = min(len(written) - agreed, len(continuation) - 1)
        return continuation[index], log_probs[index]

    def draft_after_each(
        self, written: Sequence[int], candidates: Sequence[int]
    ) -> tuple[list[int], list[float]]:
        ends = range(len(candidates) + 1)
        drafted = [self.draft_after([*written, *candidates[:end]]) for end in ends]
        tokens, log_probs = zip(*drafted, strict=True)
        return list(tokens), list(log_probs)


@dataclass(frozen=True)
class Trace:
    """All decodings of one pair.

    Attributes
    ----------
    target, draft : names of the pair.
    vocabulary_digest : digest of the target's vocabulary, which the token ids belong to.
    """

    target: str
    draft: str
    vocabulary_digest: str
    decodings: tuple[Decoding, ...]

    @cached_property
    def by_key(self) -> dict[Key, Decoding]:
        return {decoding.key: decoding for decoding in self.decodings}

    @cached_property
    def audio(self) -> frozenset[str]:
        return frozenset(decoding.audio for decoding in self.decodings)


def window_digest(recording: Recording, start_frame: int) -> str:
    return hashlib.blake2b(recording.window_samples(start_frame).tobytes(), digest_size=16).hexdigest()
