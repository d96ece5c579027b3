"""Decide which audio is decoded next, with which prompt and temperature, and whether a window is kept."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.options import CompressionRatio, DecodingOptions
from specwhisper.transcription.language_search import Probs, Voice, among, choose
from specwhisper.transcription.prompting import PreviousText, PromptText
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    HOP_SAMPLES,
    AudioChunk,
    Commit,
    CompletePiece,
    Outcome,
    Segment,
    Window,
    WordAlignment,
)


class MaxLength(NamedTuple):
    """A limit on a window's tokens that grows by the prompt of each window, as transformers' ``max_length``.

    A prompt of more than half the positions counts in part.
    """

    length: int

    def with_prompt(self, num_tokens: int, num_positions: int) -> MaxLength:
        counted = min(num_tokens, num_positions // 2 - 1)
        return MaxLength(min(self.length + counted, num_positions))


TokenLimit: TypeAlias = int | MaxLength  # on the tokens that a window generates


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """The result of a window, and candidates for the next one.

    Attributes
    ----------
    opening : tokens of this decoding with which the next window will likely begin.
    num_kept : tokens of the window whose audio is not decoded again.
    num_transcribed : first tokens that are part of the transcript; ``None`` for those of all ``segments``.
    """

    outcome: Outcome
    segments: tuple[Segment, ...]
    opening: tuple[int, ...]
    piece: CompletePiece | None = None
    num_kept: int = 0
    num_transcribed: int | None = None


class Extent(Protocol):
    """The part of the audio that has arrived: :class:`specwhisper.audio.recording.Recording`."""

    @property
    def received_samples(self) -> int:
        """Position one past the newest sample."""

    def window_is_ready(self, start_frame: int) -> bool:
        """Return whether all audio of a window has arrived."""

    def window_frames(self, start_frame: int) -> int:
        """Count the frames of a window; 0 after the end."""


class Windows(ABC):
    """Decides which windows a session has, one after the other.

    The target calls :meth:`append_audio`, :meth:`ready_frames`, :meth:`open` and :meth:`close`. The draft has
    windows of its own that follow the target's: it calls :meth:`append_audio`, :meth:`on_window_opened` and
    :meth:`on_commit`.

    Parameters
    ----------
    max_new_tokens : limit of a window's tokens where the options name none.

    Attributes
    ----------
    language : the language spoken; ``None`` until it is detected.
    needs_speech : whether :meth:`find_speech` must be called before the next window is opened.
    is_clip : whether each window is encoded as a recording of its own, of its frames only.
    reviews : whether a window that is kept needs :meth:`review` after :meth:`close`.
    stops : tokens that end a window, besides those of the vocabulary.
    has_followed : on the draft's side, whether the target has opened a window.
    """

    needs_speech = False
    is_live = False
    is_clip = False
    reviews = False
    stops: frozenset[int] = frozenset()
    next_frame = 0
    language: str | None = "en"
    _redetects = False

    def __init__(
        self, options: DecodingOptions, max_length: int, max_new_tokens: TokenLimit | None = None
    ) -> None:
        self._options = options
        self._max_length = max_length
        self._limit: TokenLimit = options.max_new_tokens or max_new_tokens or max_length
        self._next_id = 0
        self._retry: Window | None = None  # decoded again, at the next temperature
        self.has_followed = False

    @property
    def may_wait(self) -> bool:
        """Whether the windows of other sessions are opened before the next one."""
        return False

    @property
    def previous(self) -> Sequence[int]:
        """The text before the next window, for :class:`specwhisper.types.Resume`."""
        return ()

    def append_audio(self, chunk: AudioChunk, end_sample: int) -> None:  # noqa: B027 (recordings need none)
        """Take in a chunk's voice marks; ``end_sample`` is one past the newest sample."""

    def confirm_every(self, interval_ms: int | None) -> None:  # noqa: B027 (of live audio)
        """Change how often audio that grows is decoded."""

    def ready_frames(self, audio: Extent) -> int | None:
        """Return the frames of the next window; ``None`` if it cannot be opened yet, 0 at the end."""
        start = self.next_frame
        return audio.window_frames(start) if audio.window_is_ready(start) else None

    def find_speech(self, pcm: bytes, num_frames: int) -> None:  # noqa: B027 (few do)
        """Find the speech in the next window."""

    def language_span(self, num_frames: int | None) -> tuple[int, int] | None:
        """Return the frames to detect the language in: the first, and how many."""
        return (self.next_frame, num_frames) if self.language is None and num_frames else None

    def detects_in(self, span: tuple[int, int], num_frames: int | None) -> bool:
        """Return whether these frames are the ones to detect the language in."""
        return span == self.language_span(num_frames)

    def detected(self, probs: Probs) -> Probs:
        """Take the languages' probabilities in that audio; return those to report."""
        return probs

    def open(self, num_frames: int) -> Window:
        """Open the next window, of ``num_frames`` with audio, or the last one at its next temperature."""
        retry, self._retry = self._retry, None
        if retry is not None:
            attempt = retry.attempt + 1
            temperature = self._options.temperatures[attempt]
            window = replace(retry, id=self._next_id, attempt=attempt, temperature=temperature)
        else:
            prompt = self._prompt()
            window = Window(
                id=self._next_id,
                start_frame=self.next_frame,
                num_frames=num_frames,
                prompt=prompt,
                max_new_tokens=self._limit_after(prompt),
                temperature=self._options.temperatures[0],
                redetects=self._redetects,
            )
        self._next_id += 1
        return window

    def resume(self, window: Window, previous: Sequence[int] = ()) -> None:
        """Take over a window that another target opened; raise if windows cannot be resumed."""
        raise InvalidRequest("This session cannot be resumed in a window: open another one.")

    @abstractmethod
    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
    ) -> ClosedWindow:
        """Judge a complete window by its tokens' log-probabilities, and move to the next one."""

    def review(
        self,
        closed: ClosedWindow,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float],
        words: Sequence[WordAlignment],
    ) -> ClosedWindow:
        """Judge a closed window by its words, and move the beginning of the next one."""
        return closed

    @property
    def needed_from(self) -> int:
        """First sample that the next window may hold."""
        return self.next_frame * HOP_SAMPLES

    def on_window_opened(self, window: Window) -> None:
        """Follow the target to a window that it has opened."""
        self.has_followed = True
        self.next_frame = window.start_frame

    def on_commit(self, commit: Commit) -> None:  # noqa: B027 (of live audio)
        """Follow the target's commits."""

    def predict_first(self, language: str | None, audio: Extent) -> Window | None:
        """Return the first window as the target will open it, if that can be predicted."""
        return None

    @abstractmethod
    def _prompt(self) -> tuple[int, ...]: ...

    def _room(self, prompt: Sequence[int]) -> int:
        room = self._max_length - len(prompt)
        if room < 1:
            raise UnsupportedOption(
                f"The prompt has {len(prompt)} tokens, but a window of this model holds {self._max_length}."
            )
        return room

    def _limit_after(self, prompt: Sequence[int]) -> int:
        """Return the limit on the next window's tokens; one that grows does so here."""
        room, limit = self._room(prompt), self._limit
        if isinstance(limit, MaxLength):
            total = limit.with_prompt(len(prompt), self._max_length)
            limit = total.length - len(prompt)
            if limit < 1:
                raise UnsupportedOption(
                    f"The prompt has {len(prompt)} tokens, which leaves none of the {total.length} that this "
                    "model's max_length allows: shorten it, or set max_new_tokens."
                )
            if not self.is_live:  # each live window is decoded as a recording of its own
                self._limit = total
        return min(limit, room)


class WhisperWindows(Windows):
    """Windows of a Whisper model: its prompt, and the text before them.

    Parameters
    ----------
    words : the caller's words for the prompt.
    follows : whether these windows follow those of a target, which has checked the options.
    voice : finds speech, where that can be done.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: DecodingOptions,
        words: PromptText | None = None,
        *,
        max_new_tokens: TokenLimit | None = None,
        follows: bool = False,
        voice: Voice | None = None,
    ) -> None:
        super().__init__(options, vocabulary.max_length, max_new_tokens)
        self._vocabulary, self._voice = vocabulary, voice
        self.language_before: str | None = None  # to stay with, where several are allowed
        self._redetects = options.multilingual or bool(options.languages)
        self.reviews = options.hallucination_silence_threshold is not None
        self._previous = PreviousText(
            vocabulary, words or PromptText(), condition=options.condition_on_previous_text
        )
        self.language = options.language or (None if self._redetects else vocabulary.default_language)
        self.needs_speech = self._may_need_speech()
        if not follows:
            vocabulary.check(options)
            if self.language is not None:
                self._room(self._prompt())

    @property
    def previous(self) -> tuple[int, ...]:
        return self._previous.tokens

    def _may_need_speech(self) -> bool:
        return False

    def detected(self, probs: Probs) -> Probs:
        known = among(probs, self._options.languages)
        self.language = choose(known, self.language_before)
        return known

    def _prompt(self) -> tuple[int, ...]:
        return (*self._previous.prefix(), *self._vocabulary.prompt(self._options, self.language))


# Returns a session's windows; raises :class:`UnsupportedOption` for options that the model lacks.
Plan: TypeAlias = Callable[[DecodingOptions], Windows]


def judge(
    tokens: Sequence[int],
    log_probs: Sequence[float],
    no_speech_prob: float | None,
    options: DecodingOptions,
    vocabulary: Vocabulary,
) -> Outcome:
    """Return the outcome of a window by its tokens, end-of-text included.

    The rules are those of openai/whisper and transformers. ``RETRIED``: it should be decoded again, if a
    temperature is left.
    """
    has_failed = False
    if options.compression_ratio_threshold is not None:
        if options.compression_ratio_of is CompressionRatio.TOKENS:
            ratio = token_compression_ratio(tokens, len(vocabulary))
        else:
            ratio = text_compression_ratio(vocabulary.decode(tokens))
        has_failed = ratio > options.compression_ratio_threshold
    is_unsure = True
    if options.logprob_threshold is not None:
        is_unsure = avg_logprob(log_probs) < options.logprob_threshold
        has_failed = has_failed or is_unsure
    if options.no_speech_threshold is not None and is_unsure:
        if no_speech_prob is not None and no_speech_prob > options.no_speech_threshold:
            return Outcome.SKIPPED
    return Outcome.RETRIED if has_failed else Outcome.KEPT


def avg_logprob(log_probs: Sequence[float]) -> float:
    """Return the mean log-probability of a window's tokens; 0 without tokens."""
    return math.fsum(log_probs) / len(log_probs) if log_probs else 0.0


def text_compression_ratio(text: str) -> float:
    """Return a text's compression ratio by zlib (openai/whisper); 0 without text."""
    raw = text.strip().encode()
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0


def token_compression_ratio(tokens: Sequence[int], vocabulary_size: int) -> float:
    """Return the compression ratio of token ids, in transformers' bytes."""
    width = int(math.log2(vocabulary_size) / 8) + 1
    raw = b"".join(token.to_bytes(width, "little") for token in tokens)
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0
