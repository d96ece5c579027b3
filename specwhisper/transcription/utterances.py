"""Follow the utterances of live audio, and how far each is decoded next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, VoiceEvent, VoiceMark

# How far before its mark an utterance may begin: its padding, and the speech that endpointing waits for.
MAX_LOOK_BACK_SAMPLES = 5 * SAMPLE_RATE


@dataclass(slots=True)
class Utterance:
    """A stretch of speech.

    Attributes
    ----------
    number : counted from 1.
    start_sample : where it begins.
    pause_sample : where silence began; ``None`` during speech.
    end_sample : where it ends; ``None`` until then.
    """

    number: int
    start_sample: int
    pause_sample: int | None = None
    end_sample: int | None = None

    def step_end(self, received_samples: int, step_samples: int) -> int:
        """Return the sample up to which to decode now.

        During speech it lies a multiple of the step length after the start.
        """
        speech_samples = max(0, received_samples - self.start_sample)
        newest = self.start_sample + speech_samples // step_samples * step_samples
        if self.pause_sample is not None:
            newest = self.pause_sample
        if self.end_sample is not None:
            newest = self.end_sample
        return newest // HOP_SAMPLES * HOP_SAMPLES


class Utterances:
    """Follows the voice marks of a session; draft and target do so alike.

    Parameters
    ----------
    start_sample, num_complete : where the session continues, and the number of complete utterances there.

    Attributes
    ----------
    received_samples : position one past the newest sample.
    is_complete : whether the audio has ended.
    """

    def __init__(self, start_sample: int = 0, num_complete: int = 0) -> None:
        self.received_samples = start_sample
        self.is_complete = False
        self._number = num_complete
        self._open: deque[Utterance] = deque()
        self._end_sample = start_sample  # of the last utterance

    @property
    def current(self) -> Utterance | None:
        """The oldest utterance that is not complete."""
        return self._open[0] if self._open else None

    @property
    def needed_from(self) -> int:
        """First sample that an utterance may still begin with."""
        if self._open:
            return self._open[0].start_sample
        return max(self._end_sample, self.received_samples - MAX_LOOK_BACK_SAMPLES)

    @property
    def has_fallen_silent(self) -> bool:
        """Whether no utterance can begin before the newest sample any more."""
        return not self._open and self.received_samples - self._end_sample > MAX_LOOK_BACK_SAMPLES

    def append_audio(self, end_sample: int, marks: Sequence[VoiceMark], *, is_last: bool = False) -> None:
        """Follow audio up to a sample, and its voice marks."""
        self.received_samples = max(self.received_samples, end_sample)
        for mark in marks:
            self._follow(mark)
        self.is_complete |= is_last
        if is_last and self._open and self._open[-1].end_sample is None:
            self._follow(VoiceMark(VoiceEvent.END, self.received_samples))

    def skip(self) -> None:
        """Count an utterance that had ended where the session continues."""
        self._number += 1

    def finish_current(self) -> None:
        """Complete the oldest utterance."""
        self._end_sample = self._open[0].end_sample or self.received_samples
        self._open.popleft()

    def _follow(self, mark: VoiceMark) -> None:
        """Follow a mark; one that contradicts the state is ignored."""
        last = self._open[-1] if self._open else None
        is_speech = last is not None and last.end_sample is None
        sample = min(mark.sample, self.received_samples)
        match mark.event:
            case VoiceEvent.BEGIN if last is not None and is_speech:
                last.pause_sample = None
            case VoiceEvent.BEGIN:
                begin = max(sample, self.needed_from if last is None else last.end_sample or 0)
                self._number += 1
                self._open.append(Utterance(self._number, begin // HOP_SAMPLES * HOP_SAMPLES))
            case VoiceEvent.PAUSE if last is not None and is_speech:
                last.pause_sample = max(sample, last.start_sample)
            case VoiceEvent.END if last is not None and is_speech:
                if self.received_samples - last.start_sample < HOP_SAMPLES:
                    too_short = self._open.pop()
                    self._number -= 1
                    # The audio before it may be discarded by now.
                    self._end_sample = max(self._end_sample, too_short.start_sample)
                else:
                    last.end_sample = max(sample, last.start_sample + HOP_SAMPLES)
