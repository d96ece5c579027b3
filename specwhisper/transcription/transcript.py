"""Build the transcript from a session's messages: final segments, and what the open window says so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp

from specwhisper.errors import InvalidCandidates
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.segments import split_window
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Candidates, Commit, Segment, Window, WindowOpened


@dataclass(slots=True)
class Transcript:
    """A finished transcription; ``window_tokens`` has each window's tokens, end-of-text included."""

    segments: list[Segment]
    statistics: SpeculationStatistics
    window_tokens: list[tuple[int, ...]] = field(default_factory=list)

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
    segments : the segments of all complete windows.
    statistics : how the draft has done so far.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._window: Window | None = None
        self._tokens: list[int] = []  # committed tokens first, then what the draft expects
        self._num_committed = 0
        self._log_probs: list[float] = []
        self._window_tokens: list[tuple[int, ...]] = []
        self.segments: list[Segment] = []
        self.statistics = SpeculationStatistics()

    @property
    def window(self) -> Window | None:
        """The open window."""
        return self._window

    @property
    def verified_text(self) -> str:
        """What the target has written in the open window so far."""
        return self._vocabulary.decode(self._tokens[: self._num_committed])

    @property
    def draft_text(self) -> str:
        """What the draft expects to follow it."""
        return self._vocabulary.decode(self._tokens[self._num_committed :])

    def observe(self, message: WindowOpened | Candidates | Commit) -> list[Segment]:
        """Take in one message and give the segments that it completes."""
        self.statistics.observe(message)
        match message:
            case WindowOpened(window=window):
                self._window = window
                self._tokens, self._num_committed, self._log_probs = [], 0, []
            case Candidates(base=base, tokens=tokens) if self._is_open(message.window_id):
                if self._num_committed <= base <= len(self._tokens):
                    self._tokens[base:] = tokens
            case Commit() if self._is_open(message.window_id):
                return self._append(message)
        return []

    def finish(self) -> Transcript:
        """Give the transcript of everything observed."""
        return Transcript(self.segments, self.statistics, self._window_tokens)

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
        if not commit.is_final or self._window is None:
            return []
        committed = self._tokens[:end]
        segments = split_window(self._window, committed, self._vocabulary).segments
        spoken = self._with_confidence([segment for segment in segments if segment.tokens])
        self._window_tokens.append(tuple(committed))
        self._window, self._tokens, self._num_committed = None, [], 0
        self.segments += spoken
        return spoken

    def _with_confidence(self, segments: list[Segment]) -> list[Segment]:
        """Segments are consecutive cuts of the window's tokens, and so are their probabilities."""
        graded, at = [], 0
        for segment in segments:
            end = at + len(segment.tokens)
            probs = [exp(log_prob) for log_prob in self._log_probs[at:end]]
            graded.append(replace(segment, confidence=sum(probs) / len(probs) if probs else 0.0))
            at = end
        return graded
