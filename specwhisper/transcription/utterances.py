"""Where somebody speaks in live audio, and up to where it is decoded next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, VoiceEvent, VoiceMark

# How far back an utterance may begin from where it is noticed: its padding, and what it takes to be sure.
MAX_LOOK_BACK_SAMPLES = 5 * SAMPLE_RATE


@dataclass(slots=True)
class Utterance:
    """A stretch of speech.

    Attributes
    ----------
    number : counted from 1.
    start_sample : where it begins.
    pause_sample : nobody speaks behind it at the moment; ``None`` while somebody does.
    end_sample : where it ends; ``None`` while it goes on.
    """

    number: int
    start_sample: int
    pause_sample: int | None = None
    end_sample: int | None = None

    def step_end(self, received_samples: int, step_samples: int) -> int:
        """Give the sample up to which to decode now: a multiple of a step while somebody speaks."""
        speech_samples = max(0, received_samples - self.start_sample)
        newest = self.start_sample + speech_samples // step_samples * step_samples
        if self.pause_sample is not None:
            newest = self.pause_sample
        if self.end_sample is not None:
            newest = self.end_sample
        return newest // HOP_SAMPLES * HOP_SAMPLES


class Utterances:
    """Follows the marks of a session; draft and target do so alike.

    Parameters
    ----------
    start_sample, num_complete : where the session goes on, and how many utterances were complete by then.
    """

    def __init__(self, start_sample: int = 0, num_complete: int = 0) -> None:
        self.received_samples = start_sample
        self.is_complete = False
        self._number = num_complete
        self._open: deque[Utterance] = deque()
        self._end_sample = start_sample  # of the last one

    @property
    def current(self) -> Utterance | None:
        """The oldest utterance that is not done with."""
        return self._open[0] if self._open else None

    @property
    def needed_from(self) -> int:
        """Samples before this one are no longer of use."""
        if self._open:
            return self._open[0].start_sample
        return max(self._end_sample, self.received_samples - MAX_LOOK_BACK_SAMPLES)

    @property
    def has_fallen_silent(self) -> bool:
        """Whether nobody has spoken for so long that no utterance will begin before now."""
        return not self._open and self.received_samples - self._end_sample > MAX_LOOK_BACK_SAMPLES

    def append_audio(self, end_sample: int, marks: Sequence[VoiceMark], *, is_last: bool = False) -> None:
        """Take in that audio reaches to a sample, and what is marked in it."""
        self.received_samples = max(self.received_samples, end_sample)
        for mark in marks:
            self._take(mark)
        self.is_complete |= is_last
        if is_last and self._open and self._open[-1].end_sample is None:
            self._take(VoiceMark(VoiceEvent.END, self.received_samples))

    def skip(self) -> None:
        """Count an utterance of which nothing was left."""
        self._number += 1

    def finish_current(self) -> None:
        """Be done with the oldest one."""
        self._end_sample = self._open[0].end_sample or self.received_samples
        self._open.popleft()

    def _take(self, mark: VoiceMark) -> None:
        """Follow a mark; one that contradicts what is known changes nothing."""
        last = self._open[-1] if self._open else None
        speaks = last is not None and last.end_sample is None
        sample = min(mark.sample, self.received_samples)
        match mark.event:
            case VoiceEvent.BEGIN if last is not None and speaks:
                last.pause_sample = None
            case VoiceEvent.BEGIN:
                begin = max(sample, self.needed_from if last is None else last.end_sample or 0)
                self._number += 1
                self._open.append(Utterance(self._number, begin // HOP_SAMPLES * HOP_SAMPLES))
            case VoiceEvent.PAUSE if last is not None and speaks:
                last.pause_sample = max(sample, last.start_sample)
            case VoiceEvent.END if last is not None and speaks:
                if self.received_samples - last.start_sample < HOP_SAMPLES:
                    unheard = self._open.pop()
                    self._number -= 1
                    # What lies before it may be gone by now.
                    self._end_sample = max(self._end_sample, unheard.start_sample)
                else:
                    last.end_sample = max(sample, last.start_sample + HOP_SAMPLES)
