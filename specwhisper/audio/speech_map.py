"""Convert times in the speech of a recording to times in the recording."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from specwhisper.audio.speech import Span
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, Segment, Word


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
        """Return the time in the recording.

        Where two spans meet, an end is that of the first.
        """
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
    """Return segments with their times in the recording.

    ``None`` if all of it was transcribed.
    """
    return tuple(segments) if speech is None else tuple(map(speech.segment, segments))
