"""Build the transcript from a session's messages: final segments, and what the open window says so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf

from specwhisper.errors import InvalidCandidates
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.fallback import avg_logprob, text_compression_ratio
from specwhisper.transcription.segments import split_window
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    SAMPLE_RATE,
    Candidates,
    Commit,
    Outcome,
    Segment,
    Window,
    WindowOpened,
    Word,
    WordAlignment,
)


@dataclass(slots=True)
class Transcript:
    """A finished transcription.

    Attributes
    ----------
    language : code of the speech.
    language_probs : by code, where the language was detected.
    window_tokens : of each window that was kept, end-of-text included.
    num_samples : length of the recording, where known.
    """

    segments: list[Segment]
    statistics: SpeculationStatistics
    language: str = "en"
    language_probs: Mapping[str, float] = field(default_factory=dict)
    window_tokens: list[tuple[int, ...]] = field(default_factory=list)
    num_samples: int = 0

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self.segments)

    def __str__(self) -> str:
        return self.text


class TranscriptBuilder:
    """Follows one session, from the draft's side of the link.

    Attributes
    ----------
    segments : the segments of all windows that were kept.
    num_samples : length of the recording, as far as it is known; no segment ends behind it. Whoever feeds the
        audio says so.
    language, language_probs : as :class:`Transcript` has them.
    statistics : how the draft has done so far.
    """

    is_unverified = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._window: Window | None = None
        self._tokens: list[int] = []  # committed tokens first, then what the draft expects
        self._num_committed = 0
        self._log_probs: list[float] = []
        self._no_speech_prob: float | None = None
        self._window_tokens: list[tuple[int, ...]] = []
        self._language_of = {token: code for code, token in vocabulary.languages.items()}
        self.language = "en"  # what a model without languages speaks
        self.language_probs: Mapping[str, float] = {}
        self.segments: list[Segment] = []
        self.num_samples = 0
        self.statistics = SpeculationStatistics()

    @property
    def window(self) -> Window | None:
        """The open window."""
        return self._window

    @property
    def span_s(self) -> tuple[float, float]:
        """Where the open window begins and ends, in seconds."""
        if self._window is None:
            return 0.0, 0.0
        return self._window.start_sample / SAMPLE_RATE, self._window.end_sample / SAMPLE_RATE

    @property
    def verified_text(self) -> str:
        """What the target has written in the open window so far."""
        return self._vocabulary.decode_unfinished(self._tokens[: self._num_committed])

    @property
    def draft_text(self) -> str:
        """What the draft expects to follow it."""
        committed, drafted = self._tokens[: self._num_committed], self._tokens[self._num_committed :]
        return self._vocabulary.decode_unfinished(drafted, after=committed)

    def observe(self, message: WindowOpened | Candidates | Commit) -> list[Segment]:
        """Take in one message and give the segments that it completes."""
        self.statistics.observe(message)
        match message:
            case WindowOpened(window=window):
                self._window = window
                self._tokens, self._num_committed, self._log_probs = [], 0, []
                spoken = (self._language_of[i] for i in window.prompt if i in self._language_of)
                self.language = next(spoken, "en")
            case Candidates(base=base, tokens=tokens) if self._is_open(message.window_id):
                if self._num_committed <= base <= len(self._tokens):
                    self._tokens[base:] = tokens
            case Commit() if self._is_open(message.window_id):
                return self._append(message)
        return []

    def finish(self) -> Transcript:
        """Give the transcript of everything observed."""
        return Transcript(
            self.segments,
            self.statistics,
            self.language,
            self.language_probs,
            self._window_tokens,
            self.num_samples,
        )

    def _is_open(self, window_id: int) -> bool:
        return self._window is not None and self._window.id == window_id

    def _append(self, commit: Commit) -> list[Segment]:
        start = self._num_committed
        if commit.base > start:
            raise InvalidCandidates(f"A commit at position {commit.base} leaves a gap behind {start}.")
        fresh = commit.tokens[start - commit.base :]
        end = start + len(fresh)
        if self._tokens[start:end] != list(fresh):
            del self._tokens[start:]  # the draft was wrong: nothing it expected still holds
        self._tokens[start:end] = fresh
        self._num_committed = end
        self._log_probs += commit.log_probs[len(commit.log_probs) - len(fresh) :] if fresh else ()
        self._no_speech_prob = commit.no_speech_prob if start == 0 else self._no_speech_prob
        self.language_probs = commit.language_probs or self.language_probs
        if not commit.is_final or self._window is None:
            return []
        window, committed = self._window, self._tokens[:end]
        self._window, self._tokens, self._num_committed = None, [], 0
        if commit.outcome is not Outcome.KEPT:
            return []
        segments = self._segments(window, committed, commit.words)
        self._window_tokens.append(tuple(committed))
        self.segments += segments
        return segments

    def _segments(
        self, window: Window, committed: Sequence[int], words: Sequence[WordAlignment]
    ) -> list[Segment]:
        """Cut a window and say how sure it is of each piece; pieces are consecutive cuts of its tokens."""
        segments, start = [], 0
        # transformers lets the last window end after 30 s, whatever it holds; openai/whisper cuts it as here.
        heard_s = self.num_samples / SAMPLE_RATE if self.num_samples else inf
        for segment in split_window(window, committed, self._vocabulary).segments:
            end = start + len(segment.tokens)
            if segment.tokens:
                segments.append(
                    replace(
                        segment,
                        start_s=min(segment.start_s, heard_s),
                        end_s=min(segment.end_s, heard_s),
                        confidence=self._confidence(start, end),
                        avg_logprob=avg_logprob(self._log_probs),
                        compression_ratio=text_compression_ratio(self._vocabulary.decode(committed)),
                        temperature=window.temperature,
                        no_speech_prob=self._no_speech_prob,
                        words=tuple(self._word(w, committed) for w in words if start <= w.base < end),
                    )
                )
            start = end
        return segments

    def _word(self, word: WordAlignment, committed: Sequence[int]) -> Word:
        end = word.base + word.num_tokens
        return Word(
            start_s=word.start_sample / SAMPLE_RATE,
            end_s=word.end_sample / SAMPLE_RATE,
            text=self._vocabulary.decode(committed[word.base : end]),
            confidence=self._confidence(word.base, end),
        )

    def _confidence(self, start: int, end: int) -> float:
        probs = [exp(log_prob) for log_prob in self._log_probs[start:end]]
        return sum(probs) / len(probs) if probs else 0.0
