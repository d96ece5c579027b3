"""Build the transcript of a recording from messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, inf

from specwhisper.errors import InvalidCandidates
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.segments import FRAME_S, Borders, split_window, up_to_border
from specwhisper.transcription.transcription import Transcription
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import avg_logprob, text_compression_ratio
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
        num_known = len(self.tokens) - commit.base
        if num_known < 0:
            raise InvalidCandidates(
                f"A commit at position {commit.base} leaves a gap after {len(self.tokens)}."
            )
        if len(self.tokens) == len(self.window.prefix):
            self.no_speech_prob = commit.no_speech_prob
        commit = replace(
            commit,
            base=commit.base + min(num_known, len(commit.tokens)),
            tokens=commit.tokens[num_known:],
            log_probs=commit.log_probs[num_known:],
            margins=commit.margins[num_known:],
        )
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


class TranscriptBuilder:
    """Builds the transcript of one recording from windows, candidates and commits.

    Attributes
    ----------
    segments : the segments of all windows that were kept.
    num_samples : length of the recording so far, set by the caller; no segment ends after it.
    """

    is_unverified = False
    stable_text = ""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._open: OpenWindow | None = None
        self._drafted: list[int] = []  # candidates after the committed tokens, not contradicted so far
        self._window_tokens: list[tuple[int, ...]] = []
        self.language = "en"  # what a model without languages writes
        self.language_probs: Mapping[str, float] = {}
        self._borders = Borders()
        self.segments: list[Segment] = []
        self.num_samples = 0
        self.statistics = SpeculationStatistics()

    @property
    def window(self) -> Window | None:
        return self._open.window if self._open else None

    @property
    def span_s(self) -> tuple[float, float]:
        """Start and end of the open window, in seconds."""
        if self._open is None:
            return 0.0, 0.0
        window = self._open.window
        return window.start_sample / SAMPLE_RATE, window.end_sample / SAMPLE_RATE

    @property
    def settled_text(self) -> str:
        """The text of complete segments of the open window."""
        committed, is_time = self._committed, self._vocabulary.is_timestamp
        ends = (i for i in range(len(committed) - 1, 0, -1) if is_time(committed[i]))
        end = next((i for i in ends if not is_time(committed[i - 1])), 0)
        return self._vocabulary.decode_unfinished(committed[:end])

    @property
    def verified_text(self) -> str:
        return self._vocabulary.decode_unfinished(self._committed)

    @property
    def tentative_text(self) -> str:
        """The draft's text after it, which the target has not verified."""
        return self._vocabulary.decode_unfinished(self._drafted, after=self._committed)

    @property
    def _committed(self) -> list[int]:
        return self._open.tokens if self._open else []

    def observe(self, message: WindowOpened | Candidates | Commit) -> list[Segment]:
        """Take in one message; return the segments that it completes."""
        self.statistics.observe(message)
        match message:
            case WindowOpened(window=window):
                self._open, self._drafted = OpenWindow(window), []
                self.language = self._vocabulary.prompt_language(window.prompt) or "en"
                self.language_probs = message.language_probs or self.language_probs
            case Candidates() if self.window is not None and message.window_id == self.window.id:
                start = message.base - len(self._committed)
                if 0 <= start <= len(self._drafted):
                    self._drafted[start:] = message.tokens
            case Commit() if self._open is not None and message.window_id == self._open.window.id:
                return self._append(message, self._open)
        return []

    def finish(self) -> Transcription:
        return Transcription(
            segments=tuple(self.segments),
            language=self.language,
            language_probs=self.language_probs,
            duration_s=self.num_samples / SAMPLE_RATE,
            stats=self.statistics,
            window_tokens=tuple(self._window_tokens),
        )

    def _append(self, commit: Commit, opened: OpenWindow) -> list[Segment]:
        fresh = opened.append(commit).tokens
        agrees = self._drafted[: len(fresh)] == list(fresh)
        self._drafted = self._drafted[len(fresh) :] if agrees else []
        if not commit.is_final:
            return []
        self._open, self._drafted = None, []
        if commit.outcome is not Outcome.KEPT:
            return []
        segments = list(self._borders(self._segments(opened, commit)))
        self._window_tokens.append(tuple(opened.tokens))
        self.segments += segments
        return segments

    def _segments(self, complete: OpenWindow, commit: Commit) -> list[Segment]:
        """Cut a window into segments, and leave out those after the transcribed tokens."""
        num_transcribed = len(complete.tokens) if commit.num_transcribed is None else commit.num_transcribed
        segments, start = [], 0
        # transformers lets the last window end after 30 s, whatever it holds; openai/whisper cuts it as here.
        end_s = self.num_samples / SAMPLE_RATE if self.num_samples else inf
        window_end_s = complete.window.end_sample / SAMPLE_RATE
        if window_end_s + FRAME_S < end_s:  # another window follows: in another language, it may begin there
            end_s = window_end_s
        result = split_window(complete.window, complete.tokens, self._vocabulary)
        border_s = (complete.window.start_frame + result.advance_frames) * FRAME_S
        for segment in result.segments:
            end = start + len(segment.tokens)
            if segment.tokens and end <= num_transcribed:
                segment = replace(
                    segment,
                    start_s=min(segment.start_s, end_s),
                    end_s=min(segment.end_s, end_s),
                    language=self.language,
                )
                own_words = [word for word in commit.words if start <= word.base < end]
                segment = complete.with_scores(segment, start, end, own_words, self._vocabulary)
                segments.append(
                    up_to_border(segment, border_s) if commit.num_transcribed is None else segment
                )
            start = end
        return segments
