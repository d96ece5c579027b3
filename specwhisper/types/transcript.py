"""Segments and words of a transcript."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from specwhisper.types.keyed import Keyed


@dataclass(frozen=True, slots=True)
class Word(Keyed):
    """A word with its spaces and punctuation; times in seconds of the stream.

    ``confidence`` is the mean probability of its tokens, 0 where unknown; ``speaker`` is empty where unknown.
    ``word``, ``start``, ``end`` and ``probability`` are the names that other Whisper programs use.
    """

    start_s: float
    end_s: float
    text: str
    confidence: float = 0.0
    speaker: str = ""

    @property
    def word(self) -> str:
        """:attr:`text` by another name."""
        return self.text

    @property
    def start(self) -> float:
        """:attr:`start_s` by another name."""
        return self.start_s

    @property
    def end(self) -> float:
        """:attr:`end_s` by another name."""
        return self.end_s

    @property
    def probability(self) -> float:
        """:attr:`confidence` by another name."""
        return self.confidence


@dataclass(frozen=True, slots=True)
class Segment(Keyed):
    """A stretch of the transcript; times in seconds of the stream.

    ``start`` and ``end`` are the names that other Whisper programs use.

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
    id : its place in a :class:`Transcription`, counted from 0.
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
    id: int = field(default=0, compare=False)

    @property
    def start(self) -> float:
        """:attr:`start_s` by another name."""
        return self.start_s

    @property
    def end(self) -> float:
        """:attr:`end_s` by another name."""
        return self.end_s

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
