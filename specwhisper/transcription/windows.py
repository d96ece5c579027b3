"""Which stretch of audio is decoded next, with which prompt and at which temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.transcription.fallback import judge
from specwhisper.transcription.prompting import PreviousText, PromptText
from specwhisper.transcription.segments import split_window
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import FRAMES_PER_TIMESTAMP, AudioChunk, Outcome, Segment, Step, Window


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """What became of a window, and what may be expected of the next one.

    ``expected`` are tokens that the next window will likely begin with, from an earlier decoding of the same
    audio: free candidates. ``ending`` follows them if nothing more is spoken. ``step`` is what a window of
    live audio has settled.
    """

    outcome: Outcome
    segments: tuple[Segment, ...]
    expected: tuple[int, ...]
    step: Step | None = None
    ending: tuple[int, ...] = ()


class Extent(Protocol):
    """How much of the audio there is; :class:`specwhisper.audio.recording.Recording` is one."""

    @property
    def received_samples(self) -> int:
        """Position one past the newest sample."""

    def window_is_ready(self, start_frame: int) -> bool:
        """Whether all that a window needs has come."""

    def window_frames(self, start_frame: int) -> int:
        """Count the frames of a window; 0 behind the end."""


class Windows(Protocol):
    """Decides which windows a session has, one after the other; see :class:`SequentialWindows`.

    Attributes
    ----------
    next_frame : first mel frame of the next window.
    language : of the speech; ``None`` until it is detected.
    is_live : whether each window is heard as a recording of its own, of just its frames.
    attends : whether closing a window takes where the decoder looked.
    num_final : text tokens of live audio that lies in the next window that are final already.
    """

    next_frame: int
    language: str | None

    @property
    def num_final(self) -> int:
        """See above."""

    @property
    def is_live(self) -> bool:
        """See above."""

    @property
    def attends(self) -> bool:
        """See above."""

    @property
    def previous(self) -> Sequence[int]:
        """The text before the next window."""

    def hear(self, chunk: AudioChunk, end_sample: int) -> None:
        """Follow what is marked in a chunk; audio reaches to a sample."""

    def ready_frames(self, audio: Extent) -> int | None:
        """Give the frames of the next window; ``None`` while it cannot be opened, 0 at the end."""

    def open(self, num_frames: int) -> Window:
        """Open the next window."""

    def resume(self, window: Window, previous: Sequence[int] = ()) -> None:
        """Take over a window that was opened elsewhere."""

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
        attended_ms: Sequence[float] = (),
    ) -> ClosedWindow:
        """Judge a complete window and move on.

        Parameters
        ----------
        attended_ms : where in the window the decoder looked for each text token.
        """


class RecordingWindows:
    """What windows of a recording have in common: where they begin depends on the text alone."""

    is_live = False
    attends = False
    next_frame = 0

    @property
    def num_final(self) -> int:
        """Text that is written stays, and none of it lies in the next window."""
        return 0

    def hear(self, chunk: AudioChunk, end_sample: int) -> None:
        """Heed no marks."""

    def ready_frames(self, audio: Extent) -> int | None:
        """Give the frames of the next window once all of it has come, 0 at the end."""
        return audio.window_frames(self.next_frame) if audio.window_is_ready(self.next_frame) else None


class SequentialWindows(RecordingWindows):
    """Whisper's sequential decoding: each window starts where the last one's text ended."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: DecodingOptions,
        words: PromptText | None = None,
        *,
        max_new_tokens: int | None = None,
    ) -> None:
        """Begin at frame 0; ``max_new_tokens`` is what a window holds where the caller does not say."""
        vocabulary.check(options)
        self._vocabulary = vocabulary
        self._options = options
        self._previous = PreviousText(
            vocabulary, words or PromptText(), condition=options.condition_on_previous_text
        )
        self._max_new_tokens = options.max_new_tokens or max_new_tokens or vocabulary.max_length
        self._retry: Window | None = None
        self._next_id = 0
        self.next_frame = 0
        self.language = options.language or vocabulary.default_language
        if self.language is not None:
            self._room(self._prompt())

    @property
    def previous(self) -> tuple[int, ...]:
        """The text before the next window, for :class:`specwhisper.types.Resume`."""
        return self._previous.tokens

    def open(self, num_frames: int) -> Window:
        """Open the next window over ``num_frames`` mel frames that hold audio, or the same one once more."""
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
                max_new_tokens=min(self._max_new_tokens, self._room(prompt)),
                temperature=self._options.temperatures[0],
            )
        self._next_id += 1
        return window

    def resume(self, window: Window, previous: Sequence[int] = ()) -> None:
        """Take over a window that was opened elsewhere; later ones are numbered behind it."""
        self._next_id = window.id + 1
        self.next_frame = window.start_frame
        self._previous.resume(previous)
        spoken = (code for code, token in self._vocabulary.languages.items() if token in window.prompt)
        self.language = next(spoken, self.language)  # which may have been detected, once for all windows

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
        attended_ms: Sequence[float] = (),
    ) -> ClosedWindow:
        """Judge a complete window; try it again, or cut it into segments and move on behind it."""
        outcome = judge(tokens, log_probs, no_speech_prob, self._options, self._vocabulary)
        if outcome is Outcome.RETRIED:
            if window.attempt + 1 < len(self._options.temperatures):
                self._retry = window
                return ClosedWindow(outcome, (), tuple(tokens))
            outcome = Outcome.KEPT  # the last temperature has the last word
        if outcome is Outcome.SKIPPED:
            self.next_frame = window.start_frame + window.num_frames
            self._previous.append((), window.temperature)
            return ClosedWindow(outcome, (), ())
        result = split_window(window, tokens, self._vocabulary)
        self.next_frame = window.start_frame + result.advance_frames
        self._previous.append([segment.tokens for segment in result.segments], window.temperature)
        return ClosedWindow(outcome, result.segments, self._moved(result.discarded, result.advance_frames))

    def _prompt(self) -> tuple[int, ...]:
        return (*self._previous.prefix(), *self._vocabulary.prompt(self._options, self.language))

    def _room(self, prompt: Sequence[int]) -> int:
        room = self._vocabulary.max_length - len(prompt)
        if room < 1:
            raise UnsupportedOption(
                f"The prompt has {len(prompt)} tokens, but a window of this model holds "
                f"{self._vocabulary.max_length}."
            )
        return room

    def _moved(self, discarded: Sequence[int], advance_frames: int) -> tuple[int, ...]:
        """Say in the next window's times what was thrown away at the end of this one."""
        if not discarded:
            return ()
        moved = in_later_times(discarded, advance_frames, self._vocabulary)
        return (self._vocabulary.timestamp_begin, *moved)


def in_later_times(tokens: Sequence[int], advance_frames: int, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Say tokens in the times of a window that begins so much later."""
    begin, moved = vocabulary.timestamp_begin, advance_frames // FRAMES_PER_TIMESTAMP
    return tuple(max(begin, token - moved) if token >= begin else token for token in tokens)
