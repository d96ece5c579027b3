"""Segments and words of a transcript."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

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
    tokens : of the segment, timestamps included, as decoded: also of a word that is left out of its text
        because the window before ends with it.
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


BRIEFEST_S = 0.02
Spoken = TypeVar("Spoken", Word, Segment)


class TimeOrder:
    """Moves segments and words, so that none begins before the last one ends.

    A word that would have no time left keeps 20 ms, if it had them.

    Parameters
    ----------
    end_s : no time is before this one.
    """

    def __init__(self, end_s: float = 0.0) -> None:
        self._segments_end_s = self._words_end_s = end_s

    def __call__(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """Return the next segments in order."""
        return tuple(map(self._placed, segments))

    def _placed(self, segment: Segment) -> Segment:
        words = []
        for word in segment.words:
            words.append(_not_before(word, self._words_end_s, kept_s=BRIEFEST_S))
            self._words_end_s = words[-1].end_s
        segment = _not_before(segment, self._segments_end_s)
        self._segments_end_s = segment.end_s
        return replace(segment, words=tuple(words))


def _not_before(spoken: Spoken, time_s: float, *, kept_s: float = 0.0) -> Spoken:
    if spoken.start_s >= time_s:
        return replace(spoken, end_s=max(spoken.end_s, spoken.start_s))
    kept_s = max(0.0, min(kept_s, spoken.end_s - spoken.start_s))
    return replace(spoken, start_s=time_s, end_s=max(spoken.end_s, time_s, round(time_s + kept_s, 6)))
