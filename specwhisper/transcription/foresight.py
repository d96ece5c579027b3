"""Which window the target will open next, so that a draft may begin before it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.transcription.segments import split_window
from specwhisper.transcription.utterances import Utterances
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import Extent
from specwhisper.types import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    WINDOW_FRAMES,
    AudioChunk,
    Commit,
    Window,
    WindowOpened,
)


class Foresight(Protocol):
    """Follows a session and tells its next window."""

    @property
    def needed_from(self) -> int:
        """Samples before this one are no longer of use."""

    def hear(self, chunk: AudioChunk, end_sample: int) -> None:
        """Follow the audio, which reaches to a sample."""

    def observe(self, message: WindowOpened | Commit) -> None:
        """Follow what the target says."""

    def following(self, tokens: Sequence[int], audio: Extent) -> tuple[Window, tuple[int, ...]] | None:
        """Give the window behind the last one, whose tokens are believed, and what it will begin with."""


class RecordingForesight:
    """Of a recording: the next window begins where the last times of a complete one say.

    With the text before as its prompt it could be known only when the target is through.
    """

    def __init__(self, vocabulary: Vocabulary, options: DecodingOptions) -> None:
        self._vocabulary = vocabulary
        self._options = options
        self._window: Window | None = None
        self._needed_from = 0

    @property
    def needed_from(self) -> int:
        """Where the last window began."""
        return self._needed_from

    def hear(self, chunk: AudioChunk, end_sample: int) -> None:
        """Heed no marks."""

    def observe(self, message: WindowOpened | Commit) -> None:
        """Note the open window."""
        if isinstance(message, WindowOpened):
            self._window, self._needed_from = message.window, message.window.start_sample
        elif message.is_final:
            self._window = None

    def following(self, tokens: Sequence[int], audio: Extent) -> tuple[Window, tuple[int, ...]] | None:
        """Tell it once the open window is believed to be complete."""
        window = self._window
        if window is None or self._options.condition_on_previous_text:
            return None
        if not tokens or tokens[-1] not in self._vocabulary.ends:
            return None
        start_frame = window.start_frame + split_window(window, tokens, self._vocabulary).advance_frames
        num_frames = audio.window_frames(start_frame) if audio.window_is_ready(start_frame) else 0
        return _next_window(window, start_frame, num_frames, self._options), ()


class LiveForesight:
    """Of live audio: the next window reaches to the newest step."""

    def __init__(self, vocabulary: Vocabulary, options: DecodingOptions) -> None:
        self._vocabulary = vocabulary
        self._options = options
        live = options.live or LiveOptions()
        self._step_samples = live.step_ms * SAMPLE_RATE // 1000
        self._recalls = live.recalls
        self._utterances = Utterances(live.position.start_sample, live.position.num_utterances)
        self._window: Window | None = None
        self._goes_on = False  # whether the last window's utterance does
        # Where text is final of a window that is to be opened; there it begins, whenever somebody speaks.
        self._resumes_at = live.position.start_sample if live.position.final_tokens else None

    @property
    def needed_from(self) -> int:
        """Where the open utterance's window begins; in silence, a moment ago."""
        if self._goes_on and self._window is not None:
            return self._window.start_sample
        needed_from = self._utterances.needed_from
        return needed_from if self._resumes_at is None else min(needed_from, self._resumes_at)

    def hear(self, chunk: AudioChunk, end_sample: int) -> None:
        """Follow the marks."""
        self._utterances.hear(end_sample, chunk.marks, is_last=chunk.is_last)
        if self._utterances.has_fallen_silent:
            self._resumes_at = None

    def observe(self, message: WindowOpened | Commit) -> None:
        """Note the last window, and when an utterance is done."""
        if isinstance(message, WindowOpened):
            self._window, self._goes_on, self._resumes_at = message.window, True, None
        elif message.step is not None and message.step.is_last:
            self._goes_on = False
            if self._utterances.current is not None:
                self._utterances.finish_current()

    def following(self, tokens: Sequence[int], audio: Extent) -> tuple[Window, tuple[int, ...]] | None:
        """Tell it as soon as its audio is there; of the very first one only the target knows the prompt."""
        window, utterance = self._window, self._utterances.current
        if window is None or utterance is None:
            return None
        if not self._goes_on and self._options.condition_on_previous_text:
            return None
        start_frame = window.start_frame if self._goes_on else utterance.start_sample // HOP_SAMPLES
        end_frame = utterance.step_end(audio.received_samples, self._step_samples) // HOP_SAMPLES
        num_frames = min(end_frame - start_frame, WINDOW_FRAMES)
        if num_frames <= (window.num_frames if self._goes_on else 0):
            return None
        expected = self._vocabulary.without_ending(tokens) if self._goes_on and self._recalls else ()
        return _next_window(window, start_frame, num_frames, self._options), expected


def foresight(vocabulary: Vocabulary, options: DecodingOptions) -> Foresight:
    """Choose by what is decoded."""
    kind = RecordingForesight if options.live is None else LiveForesight
    return kind(vocabulary, options)


def _next_window(window: Window, start_frame: int, num_frames: int, options: DecodingOptions) -> Window:
    return replace(
        window,
        id=window.id + 1,
        start_frame=start_frame,
        num_frames=num_frames,
        temperature=options.temperatures[0],
        attempt=0,
    )
