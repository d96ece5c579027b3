"""Takes of human speech: clean, in noise, by telephone, and two speakers in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, zip_longest

import numpy as np
from numpy.random import Generator

from experiments.common.audio.conditions import (
    Samples,
    by_telephone,
    pcm_of,
    pink_noise,
    samples_of,
    sound,
    with_noise,
)
from experiments.common.audio.samples import Sample
from experiments.common.bench.passes import encode_s
from experiments.common.inline_pair import InlinePair
from experiments.streaming.measures import SpokenWord
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.recording import log_mel_max
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, Mode, Word

TURN_S = 1.2  # silence after which an utterance has ended; JFK's pauses within sentences have up to 1.1 s
GAP_S = 1.0, 1.5  # between recordings, which have some silence themselves
TURN_GAP_S = 0.0, 0.3  # between two speakers
PAUSE_S = 0.4  # at which a long recording is cut into a speaker's turns
TAIL_S = 2.0  # silence after a take, in which its last utterance ends
FADE_S = 0.15  # at either end of a recording, which would otherwise begin and end with a click
MIN_SOUND_S = 0.05  # shortest sound of a word
QUICK_S = 10.0


class Condition(StrEnum):
    CLEAN = "clean"
    NOISE = "10 dB noise"
    TELEPHONE = "telephone"
    TWO_SPEAKERS = "two speakers"


@dataclass(frozen=True, slots=True)
class Take:
    """Audio of a live session, and what is said in it."""

    condition: Condition
    pcm: bytes
    text: str  # what the target writes for the whole take
    words: tuple[SpokenWord, ...]  # words of the same speech without noise, with the end of each word's sound
    ends_s: tuple[float, ...]  # where utterances end, by voice activity
    speech_s: float  # without longer silences

    @property
    def duration_s(self) -> float:
        return len(self.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE


class Recorder:
    """Makes takes of recordings, and transcribes them with the target alone."""

    def __init__(self, target: str, seed: int) -> None:
        checkpoint = load_checkpoint(target)
        self._model = WhisperModel(checkpoint, 1)
        self._engine = InlinePair(
            self._model, mode=Mode.TARGET_ONLY, max_new_tokens=checkpoint.max_new_tokens
        )
        self._random = np.random.default_rng(seed)

    def takes(self, samples: Sequence[Sample], *, quick: bool) -> list[Take]:
        limit_s = QUICK_S if quick else np.inf
        shuffled = [samples[index] for index in self._random.permutation(len(samples))]
        one = _joined([samples_of(each.pcm) for each in shuffled], GAP_S, self._random, limit_s)
        two = _joined(list(turns(shuffled)), TURN_GAP_S, self._random, limit_s)
        sent = {
            Condition.CLEAN: (one, one),
            Condition.NOISE: (one, with_noise(one, pink_noise(len(one), self._random))),
            Condition.TELEPHONE: (one, by_telephone(one)),
            Condition.TWO_SPEAKERS: (two, two),
        }
        spoken = {id(clean): self._words(clean) for clean in (one, two)}
        return [
            Take(condition, pcm_of(audio), self._text(audio), spoken[id(clean)], *utterances(sound(clean)))
            for condition, (clean, audio) in sent.items()
        ]

    def encode_s(self) -> float:
        return encode_s(self._model, Sample("silence", bytes(2), {}).recording)

    def _words(self, samples: Samples) -> tuple[SpokenWord, ...]:
        spans_s = sound(samples)
        options = self._options(samples, word_timestamps=True)
        segments = self._engine.transcribe([pcm_of(samples)], options)[0].segments
        words = [word for segment in segments for word in segment.words]
        return tuple(SpokenWord(word.text, sound_end_s(word, spans_s)) for word in words)

    def _text(self, samples: Samples) -> str:
        return self._engine.transcribe([pcm_of(samples)], self._options(samples))[0].text

    def _options(self, samples: Samples, *, word_timestamps: bool = False) -> DecodingOptions:
        maxima = log_mel_max([pcm_of(samples)])
        return DecodingOptions(language="en", word_timestamps=word_timestamps, log_mel_max=maxima)


def turns(samples: Sequence[Sample]) -> list[Samples]:
    """Let the speakers take turns; a name begins with its speaker's. Long recordings are cut at pauses."""
    by_speaker: dict[str, list[Samples]] = {}
    for each in samples:
        speaker = each.name.partition(".")[0].partition("_")[0]
        by_speaker.setdefault(speaker, []).extend(_cut_at_pauses(samples_of(each.pcm)))
    return [turn for of_all in zip_longest(*by_speaker.values()) for turn in of_all if turn is not None]


def utterances(spans_s: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], float]:
    """Return where speech ends and does not continue for :data:`TURN_S`, and the seconds of speech."""
    silences_s = [(end_s, start_s - end_s) for (_, end_s), (start_s, _) in pairwise(spans_s)]
    ends_s = [end_s for end_s, silence_s in silences_s if silence_s >= TURN_S]
    shorter_s = sum(silence_s for _, silence_s in silences_s if silence_s < PAUSE_S)
    speech_s = sum(end_s - start_s for start_s, end_s in spans_s) + shorter_s
    return (*ends_s, *(end_s for _, end_s in spans_s[-1:])), speech_s


def sound_end_s(word: Word, spans_s: Sequence[tuple[float, float]]) -> float:
    """Return the end of a word's sound: the target's word may reach over a silence.

    A word with a punctuation mark is before the silence, another one after it.
    """
    clipped_s = [(max(word.start_s, start_s), min(word.end_s, end_s)) for start_s, end_s in spans_s]
    ends_s = [end_s for start_s, end_s in clipped_s if end_s - start_s > MIN_SOUND_S]
    return (ends_s[0] if word.text[-1:] in ".,!?;:" else ends_s[-1]) if ends_s else word.end_s


def _cut_at_pauses(samples: Samples) -> list[Samples]:
    cuts = [(end + start) / 2 for (_, end), (start, _) in pairwise(sound(samples)) if start - end >= PAUSE_S]
    return np.split(samples, [round(cut_s * SAMPLE_RATE) for cut_s in cuts])


def _joined(
    pieces: Sequence[Samples], gap_s: tuple[float, float], random: Generator, limit_s: float
) -> Samples:
    """Join pieces with silence between them, until they have ``limit_s`` seconds, and a tail of silence."""
    joined: list[Samples] = []
    for piece in pieces:
        if sum(map(len, joined)) < limit_s * SAMPLE_RATE:
            fade = np.minimum(1, np.arange(len(piece)) / (FADE_S * SAMPLE_RATE))
            silence = np.zeros(round(random.uniform(*gap_s) * SAMPLE_RATE))
            joined += [piece * fade * fade[::-1], silence]
    return np.concatenate([*joined[:-1], np.zeros(round(TAIL_S * SAMPLE_RATE))])
