"""Segments and words of a transcript."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its spaces and punctuation; times in seconds of the stream.

    ``confidence`` is the mean probability of its tokens, 0 where unknown; ``speaker`` is empty where unknown.
    """

    start_s: float
    end_s: float
    text: str
    confidence: float = 0.0
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the transcript; times in seconds of the stream.

    Attributes
    ----------
    tokens : of the segment, timestamps included.
    confidence : mean probability of the tokens, 0 where unknown.
    avg_logprob, compression_ratio, temperature, no_speech_prob : of the window it was decoded in, as
        openai/whisper reports them; the ratio is over the text.
    seek : first mel frame of that window.
    words : where word times were asked for.
    utterance : number of its utterance in live audio, counted from 1; 0 in recordings.
    is_utterance_end : whether the utterance ends with it; its text may be empty then.
    language : code of its window's language; of live audio, of its utterance's. Empty where unknown.
    speaker : name of the speaker of most of it; empty where unknown.
    """

    start_s: float
    end_s: float
    tokens: tuple[int, ...]
    text: str = ""
    confidence: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 0.0
    temperature: float = 0.0
    no_speech_prob: float | None = None
    seek: int = 0
    words: tuple[Word, ...] = ()
    utterance: int = 0
    is_utterance_end: bool = False
    language: str = ""
    speaker: str = ""

    def not_before(self, time_s: float) -> Segment:
        """Return the segment with no time before this one, its words included."""
        if self.start_s >= time_s and self.end_s >= self.start_s:
            return self
        start_s = max(self.start_s, time_s)
        words = tuple(
            replace(word, start_s=max(word.start_s, start_s), end_s=max(word.end_s, start_s))
            for word in self.words
        )
        return replace(self, start_s=start_s, end_s=max(self.end_s, start_s), words=words)


def in_order(segments: Iterable[Segment], final_end_s: float) -> tuple[Segment, ...]:
    """Move segments so that none begins before the end of the one before.

    A server or target at which a stream resumes knows the final text, but not its times.
    """
    ordered: list[Segment] = []
    for segment in segments:
        ordered.append(segment.not_before(final_end_s))
        final_end_s = ordered[-1].end_s
    return tuple(ordered)
