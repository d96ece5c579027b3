"""Add the speakers of turns to the words and segments of a transcript; the text stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from string import ascii_uppercase
from typing import Protocol, Self

import numpy as np

from specwhisper.types import Segment, Word

MAX_DISTANCE_S = 1.0  # from a word to a turn: times of words are less sure than those of speech


@dataclass(frozen=True, slots=True)
class Turn:
    """A stretch in which one speaker speaks, in seconds; another one's may overlap it."""

    start_s: float
    end_s: float
    speaker: str


Turns = asyncio.Task[Sequence[Turn]]  # a search for them beside a transcription


class TurnFinder(Protocol):
    """Finds who speaks when in recordings."""

    async def turns_of(self, decode: Callable[[], Iterator[bytes]]) -> Sequence[Turn]:
        """Return the turns of a recording, which ``decode`` yields as canonical PCM."""


class UtteranceSpeakers(Protocol):
    """Names the speakers of a live session's utterances."""

    def append(self, pcm: bytes) -> None:
        """Add canonical PCM."""

    async def named(self, utterance: Segment) -> Segment:
        """Return an utterance with speakers, once the audio up to its end was added."""


class SpeakerModels(TurnFinder, Protocol):
    """Finds the speakers of recordings and of live audio for a server."""

    async def knowing(self, samples: Mapping[str, bytes]) -> Self:
        """Return one that names the speakers of whom there is a sample, by name."""

    def live(self, *, max_speakers: int | None = None, start_sample: int = 0) -> UtteranceSpeakers:
        """Return what names the speakers of a live session, whose audio begins at a sample."""

    async def close(self) -> None:
        """End the process of live sessions."""


def label(number: int) -> str:
    """Return the name of a speaker, counted from 0: A to Z, then AA."""
    letters = ascii_uppercase[number % 26]
    return letters if number < 26 else label(number // 26 - 1) + letters


def number_of(name: str) -> int:
    """Return the number of a speaker by its :func:`label`, counted from 1; 0 for an empty name."""
    number = 0
    for letter in name:
        number = 26 * number + ascii_uppercase.index(letter) + 1
    return number


def with_speakers(segments: Iterable[Segment], turns: Sequence[Turn]) -> tuple[Segment, ...]:
    """Return segments whose words have speakers.

    A word, or a segment without words, has the speaker whose turns it overlaps most; without an overlap that
    of the nearest turn, at most ``MAX_DISTANCE_S`` away. A segment with words has the speaker of most of
    their time.
    """
    find = SpeakersOfTurns(turns).during
    found = []
    for segment in segments:
        words = tuple(replace(word, speaker=find(word.start_s, word.end_s)) for word in segment.words)
        speaker = _most_of(words) if words else find(segment.start_s, segment.end_s)
        found.append(replace(segment, words=words, speaker=speaker))
    return tuple(found)


def by_speaker(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Yield segments of one speaker each.

    Those with words of several are cut between words. The parts of a cut segment have the times of their
    words, and no tokens.
    """
    for segment in segments:
        runs = [(speaker, tuple(words)) for speaker, words in groupby(segment.words, lambda w: w.speaker)]
        if len(runs) < 2:
            yield segment
            continue
        for speaker, words in runs:
            yield replace(
                segment,
                start_s=words[0].start_s,
                end_s=words[-1].end_s,
                tokens=(),
                text="".join(word.text for word in words),
                words=words,
                speaker=speaker,
            )


class SpeakersOfTurns:
    """Finds the speaker of a time among turns."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._names = list(dict.fromkeys(turn.speaker for turn in turns))
        self._starts_s = np.array([turn.start_s for turn in turns])
        self._ends_s = np.array([turn.end_s for turn in turns])
        self._speakers = np.array([self._names.index(turn.speaker) for turn in turns], np.int64)

    def during(self, start_s: float, end_s: float) -> str:
        """Return the speaker of a time; empty without a turn near it."""
        if not self._names:
            return ""
        overlaps_s = np.minimum(self._ends_s, end_s) - np.maximum(self._starts_s, start_s)
        by_speaker_s = np.bincount(self._speakers, overlaps_s.clip(min=0.0))
        if by_speaker_s.any():
            return self._names[int(by_speaker_s.argmax())]
        nearest = int(overlaps_s.argmax())
        is_near = overlaps_s[nearest] >= -MAX_DISTANCE_S
        return self._names[self._speakers[nearest]] if is_near else ""


def _most_of(words: Iterable[Word]) -> str:
    times_s: dict[str, float] = {}
    for word in words:
        times_s[word.speaker] = times_s.get(word.speaker, 0.0) + word.end_s - word.start_s
    return max(times_s, key=lambda speaker: (times_s[speaker], speaker != ""))
