"""The committed tokens of a window, as the target's commits report them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp

from specwhisper.errors import InvalidCandidates
from specwhisper.transcription.fallback import avg_logprob, text_compression_ratio
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import SAMPLE_RATE, Commit, Segment, Window, Word, WordAlignment


class OpenWindow:
    """Collects the commits of one window.

    Attributes
    ----------
    tokens, log_probs : committed so far; natural log-probabilities, one per token.
    no_speech_prob : probability that the window holds no speech; ``None`` until the target has sent it.
    """

    def __init__(self, window: Window, tokens: Sequence[int] = (), log_probs: Sequence[float] = ()) -> None:
        self.window = window
        self.tokens = list(tokens or window.prefix)
        self.log_probs = list(log_probs or [0.0] * len(window.prefix))
        self.no_speech_prob: float | None = None
        self.is_complete = False

    def append(self, commit: Commit) -> Commit:
        """Append a commit without the tokens that are known, and return it so; it may leave no gap."""
        known = len(self.tokens)
        if commit.base > known:
            raise InvalidCandidates(f"A commit at position {commit.base} leaves a gap after {known}.")
        if known == len(self.window.prefix):
            self.no_speech_prob = commit.no_speech_prob
        commit = _without_known(commit, known - commit.base)
        self.tokens += commit.tokens
        self.log_probs += commit.log_probs
        self.is_complete = commit.is_final
        return commit

    def with_scores(
        self, segment: Segment, start: int, end: int, words: Sequence[WordAlignment], vocabulary: Vocabulary
    ) -> Segment:
        """Return the segment of some tokens with words, confidence and its window's scores."""
        num_given = len(self.window.prefix)
        return replace(
            segment,
            confidence=self._confidence(start, end),
            avg_logprob=avg_logprob(self.log_probs[num_given:]),
            compression_ratio=text_compression_ratio(vocabulary.decode(self.tokens[num_given:])),
            temperature=self.window.temperature,
            no_speech_prob=self.no_speech_prob,
            words=tuple(self._word(word, vocabulary) for word in words),
        )

    def _word(self, word: WordAlignment, vocabulary: Vocabulary) -> Word:
        end = word.base + word.num_tokens
        return Word(
            start_s=word.start_sample / SAMPLE_RATE,
            end_s=word.end_sample / SAMPLE_RATE,
            text=vocabulary.decode(self.tokens[word.base : end]),
            confidence=self._confidence(word.base, end),
        )

    def _confidence(self, start: int, end: int) -> float:
        probs = [exp(log_prob) for log_prob in self.log_probs[start:end]]
        return sum(probs) / len(probs) if probs else 0.0


def _without_known(commit: Commit, num_known: int) -> Commit:
    if num_known == 0:
        return commit
    return replace(
        commit,
        base=commit.base + min(num_known, len(commit.tokens)),
        tokens=commit.tokens[num_known:],
        log_probs=commit.log_probs[num_known:],
        margins=commit.margins[num_known:],
    )
