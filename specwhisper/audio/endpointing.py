"""Mark where utterances begin, are cut and end, by the probability of speech.

Like silero-vad's own ``VADIterator``, with a shortest utterance and with cuts. The marks are a function of
the audio alone, even in a stream that continues at a boundary: all state starts anew there.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, floats
from specwhisper.live import EndpointingOptions
from specwhisper.types import SAMPLE_RATE, VoiceEvent, VoiceMark

FRAME_SAMPLES = 512  # one input of silero-vad: 32 ms
HYSTERESIS = 0.15  # silero-vad's: this much below the threshold, or less, nothing changes
SURE_SILENCE = 0.01  # silero-vad's: below it there is silence, however low the threshold
SAMPLES_PER_MS = SAMPLE_RATE // 1000
# At first the model takes the beginning of a hum for speech, so speech that begins there must last longer.
SETTLING_MS, SETTLED_SPEECH_MS = 320, 250
STEP_SAMPLES = SAMPLE_RATE // 50  # the step of Whisper's timestamps: marks are multiples of it
TAIL_MS = 200  # how far an utterance reaches into the silence, since last sounds are soft
SILENT_MS = 4_000  # in silence a boundary moves on by this much
LONGEST_PIECE_MS = 28_300  # also of one whose end would take a long silence
MIN_PAUSE_FRAMES = 2  # to cut at; without one, the quietest stretch of this many:
QUIET_FRAMES = 6
PAUSE_LOUDNESS = 0.3  # relative to the audio around; less is a pause


class Endpointer:
    """Converts frames to voice marks.

    Parameters
    ----------
    options : how utterances are found; ``None`` if all audio is one utterance.
    boundary_sample, is_speech : where the stream begins or continues.
    settling_ms : time in which the model is not reliable yet, in milliseconds.

    Attributes
    ----------
    boundary_sample : first sample of the first frame. It moves with each cut and end, and in silence; then
        the frames from there on are expected, of a model that starts anew as well.
    is_speech : whether an utterance was cut there, and continues.
    """

    def __init__(
        self,
        options: EndpointingOptions | None,
        boundary_sample: int = 0,
        *,
        is_speech: bool = False,
        settling_ms: int = SETTLING_MS,
    ) -> None:
        self._finds_utterances = options is not None
        self._options = options = options or EndpointingOptions()
        self._silence_level = max(options.threshold - HYSTERESIS, SURE_SILENCE)
        self._settling_ms = settling_ms
        self._start_anew(boundary_sample, is_speech=is_speech)

    def _start_anew(self, sample: int, *, is_speech: bool = False) -> None:
        self.boundary_sample = sample
        self.is_speech = is_speech
        self._levels: list[float] = []  # the frames' since then
        self._begin: int | None = sample if is_speech else None  # where the open piece of an utterance begins
        self._speech_start = self._begin  # where the utterance begins, or a noise that may become one
        self._silence_start: int | None = None

    def on_frame(self, level: float) -> VoiceMark | None:
        """Add the next frame; return the mark that it leads to.

        ``level`` is the probability of speech, or the loudness if all audio is one utterance.
        """
        frame_start = self.boundary_sample + len(self._levels) * FRAME_SAMPLES
        self._levels.append(level)
        end_sample = frame_start + FRAME_SAMPLES
        mark = None
        if self._finds_utterances and level >= self._options.threshold:
            mark = self._on_speech(frame_start)
        elif self._finds_utterances and level < self._silence_level:
            mark = self._on_silence(frame_start)
        if mark is not None:
            return mark
        if self._begin is None:
            return self._on_no_utterance(end_sample)
        is_silence = self._finds_utterances and level < self._silence_level  # it may end the utterance
        length_ms = (end_sample - self._begin) / SAMPLES_PER_MS
        if length_ms >= (LONGEST_PIECE_MS if is_silence else self._options.max_piece_ms):
            return self._cut(self._begin)
        return None

    def end_utterance(self, end_sample: int) -> list[VoiceMark]:
        """End the utterance at the newest sample; return the marks.

        Without speech there are none. Speech that is too short for an utterance so far begins one. The end is
        a break unless silence has begun: a model that continued a text from within a word would guess.
        """
        is_silence = self._silence_start is not None
        end_sample = max(end_sample // STEP_SAMPLES * STEP_SAMPLES, self.boundary_sample)
        marks = []
        if self._begin is None:
            is_sound = not self._finds_utterances and end_sample > self.boundary_sample
            if not is_sound and self._speech_start is None:
                return []
            marks.append(self._begin_utterance())
        return [*marks, self._end(end_sample, VoiceEvent.END if is_silence else VoiceEvent.BREAK)]

    def _on_speech(self, frame_start: int) -> VoiceMark | None:
        self._silence_start = None
        if self._speech_start is None:
            self._speech_start = frame_start
        speech = frame_start + FRAME_SAMPLES - self._speech_start
        if self._begin is not None or speech < self._min_speech_ms(self._speech_start) * SAMPLES_PER_MS:
            return None
        return self._begin_utterance()

    def _on_silence(self, frame_start: int) -> VoiceMark | None:
        if self._begin is None or self._speech_start is None:
            self._speech_start = None
            return None
        if self._silence_start is None:
            self._silence_start = frame_start
        silence = frame_start + FRAME_SAMPLES - self._silence_start
        speech = self._silence_start - self._speech_start
        if silence < self._ending_silence_ms(speech) * SAMPLES_PER_MS:
            return None
        tail = min(TAIL_MS * SAMPLES_PER_MS, silence)
        return self._end((self._silence_start + tail) // STEP_SAMPLES * STEP_SAMPLES)

    def _ending_silence_ms(self, speech: int) -> int:
        """Return the silence that ends an utterance with this much speech."""
        options = self._options
        if self.is_speech or speech >= options.min_utterance_ms * SAMPLES_PER_MS:
            return options.silence_duration_ms
        return max(options.silence_duration_ms, options.short_silence_ms)

    def _min_speech_ms(self, speech_start: int) -> int:
        if speech_start < self.boundary_sample + self._settling_ms * SAMPLES_PER_MS:
            return max(self._options.min_speech_ms, SETTLED_SPEECH_MS)
        return self._options.min_speech_ms

    def _begin_utterance(self) -> VoiceMark:
        begin = self.boundary_sample
        if self._speech_start is not None:
            padded = self._speech_start - self._options.prefix_padding_ms * SAMPLES_PER_MS
            begin = max(begin, padded // STEP_SAMPLES * STEP_SAMPLES)
        self._begin = begin
        return VoiceMark(VoiceEvent.BEGIN, begin)

    def _on_no_utterance(self, end_sample: int) -> VoiceMark | None:
        """Move the boundary on; what the next utterance needs stays after it."""
        if not self._finds_utterances:
            return self._begin_utterance()
        options = self._options
        needed_ms = options.prefix_padding_ms + max(options.min_speech_ms, SETTLED_SPEECH_MS) + SETTLING_MS
        if end_sample - self.boundary_sample >= (SILENT_MS + needed_ms) * SAMPLES_PER_MS:
            self._start_anew(self.boundary_sample + SILENT_MS * SAMPLES_PER_MS)
        return None

    def _end(self, sample: int, event: VoiceEvent = VoiceEvent.END) -> VoiceMark:
        self._start_anew(sample)
        return VoiceMark(event, sample)

    def _cut(self, begin: int) -> VoiceMark:
        """Cut the piece at the best pause of its last two thirds."""
        longest = self._options.max_piece_ms * SAMPLES_PER_MS
        first = -(-(begin + longest // 3 - self.boundary_sample) // FRAME_SAMPLES)
        levels = self._levels[first : (begin + longest - self.boundary_sample) // FRAME_SAMPLES]
        pause_level = PAUSE_LOUDNESS * fmean(levels)
        start, stop = longest_run(levels, self._silence_level if self._finds_utterances else pause_level)
        if stop - start < MIN_PAUSE_FRAMES:
            start, stop = quietest(levels)
        middle = self.boundary_sample + (2 * first + start + stop) * FRAME_SAMPLES // 2
        self._start_anew(middle // STEP_SAMPLES * STEP_SAMPLES, is_speech=True)
        return VoiceMark(VoiceEvent.CUT, self.boundary_sample)


def longest_run(levels: list[float], below: float) -> tuple[int, int]:
    best, start = (0, 0), 0
    for index, level in enumerate(levels):
        if not level < below:
            start = index + 1
        elif index + 1 - start >= best[1] - best[0]:
            best = start, index + 1
    return best


def quietest(levels: list[float]) -> tuple[int, int]:
    starts = range(len(levels) - QUIET_FRAMES, -1, -1)
    start = min(starts, key=lambda start: fmean(levels[start : start + QUIET_FRAMES]))
    return start, start + QUIET_FRAMES


FRAME_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE

# Returns the probability of speech in the next frame, samples in -1..1; it may keep state.
Vad = Callable[[NDArray[np.float32]], float]


class VoiceMarker:
    """Runs a model over one stream; ``open_vad`` opens a fresh one at each boundary."""

    def __init__(self, endpointer: Endpointer, open_vad: Callable[[], Vad]) -> None:
        self._endpointer = endpointer
        self._open_vad = open_vad
        self._vad = open_vad()
        self._pcm = bytearray()  # from the boundary on
        self._at = 0  # byte of the next frame

    @property
    def boundary_sample(self) -> int:
        """Where another detector would continue: the last cut or end, or in the silence since then."""
        return self._endpointer.boundary_sample

    def append(self, pcm: bytes) -> list[VoiceMark]:
        """Process canonical PCM; return the marks that follow from it."""
        self._pcm += pcm
        marks = []
        while self._at + FRAME_BYTES <= len(self._pcm):
            frame = floats(bytes(self._pcm[self._at : self._at + FRAME_BYTES]))
            self._at += FRAME_BYTES
            before = self.boundary_sample
            mark = self._endpointer.on_frame(self._vad(frame))
            if mark is not None:
                marks.append(mark)
            self._follow_boundary(before)
        return marks

    def end_utterance(self) -> list[VoiceMark]:
        """End the utterance at the newest sample; return the marks.

        Without speech there are none. Speech that was too short for an utterance becomes one, so nothing is
        lost where the client ends an utterance, or the audio.
        """
        before = self.boundary_sample
        marks = self._endpointer.end_utterance(before + len(self._pcm) // BYTES_PER_SAMPLE)
        self._follow_boundary(before)
        return marks

    def _follow_boundary(self, before: int) -> None:
        if self.boundary_sample != before:
            del self._pcm[: (self.boundary_sample - before) * BYTES_PER_SAMPLE]
            self._vad, self._at = self._open_vad(), 0


def loudness(frame: NDArray[np.float32]) -> float:
    """Return how loud a frame is, 0..1: a model that knows no speech."""
    return float(np.sqrt(np.mean(np.square(frame))))
