"""Synthetic speech whose words are levels of loudness, and scripted models that transcribe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from experiments.common.models.scripted import (
    END,
    MULTILINGUAL,
    NO_TIMESTAMPS,
    NUM_TEXT,
    TIME,
    VOCABULARY,
    ScriptedModel,
)
from specwhisper.audio.endpointing import Endpointer, VoiceMarker
from specwhisper.audio.recording import Recording
from specwhisper.live import EndpointingOptions
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.sampling import Sampling
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import CONTEXT_SAMPLES, FRAMES_PER_TIMESTAMP, HOP_SAMPLES, SAMPLE_RATE, VoiceEvent

NUM_WORDS = 18  # tokens A to R begin a word, s to x continue one
SPOKEN = replace(
    VOCABULARY,
    tokens=(
        *(("Ġ" if i < NUM_WORDS else "") + chr(ord("a") + i) for i in range(NUM_TEXT)),
        *VOCABULARY.tokens[NUM_TEXT:],
    ),
    max_length=448,
)
SPOKEN_MULTILINGUAL = replace(SPOKEN, languages=MULTILINGUAL.languages, tasks=MULTILINGUAL.tasks)

SPANS = ((1.0, 4.2), (6.0, 6.6), (8.0, 12.4))
LENGTH_S = 14.0

WORD_SAMPLES = SAMPLE_RATE // 5
SENTENCE_WORDS = 5
QUIETEST, LOUDER = 2_000, 400  # amplitude of token 0, and step to the next token
TOLERANCE_SAMPLES = SAMPLE_RATE // 50  # timestamps have steps of 20 ms


def speech(length_s: float, seed: int = 0) -> bytes:
    """Return words of 200 ms, each with its own loudness, so that any clip contains the same words."""
    num_samples = round(length_s * SAMPLE_RATE)
    steps = np.random.default_rng(seed).integers(1, NUM_TEXT, num_samples // WORD_SAMPLES + 1)
    words = np.cumsum(steps) % NUM_TEXT  # never the same word twice in a row
    loudness = np.repeat(QUIETEST + LOUDER * words, WORD_SAMPLES)[:num_samples]
    return (loudness * np.where(np.arange(num_samples) % 2, 1, -1)).astype("<i2").tobytes()


class SpeechModel(ScriptedModel):
    """Transcribes the words of :func:`speech`; a cut last word becomes another word.

    Like a speech model it writes the same words again when the clip grows; like the scripted model it reacts
    to any other prefix than its own text.
    """

    def __init__(
        self,
        num_slots: int = 1,
        *,
        vocabulary: Vocabulary = SPOKEN,
        max_positions: int = 448,
        seed: int = 0,
        error_rate: float = 0.0,
    ) -> None:
        super().__init__(
            num_slots, vocabulary=vocabulary, max_positions=max_positions, seed=seed, error_rate=error_rate
        )
        self._texts: dict[str, list[int]] = {}

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        assert start_frame == 0 and recording.is_complete, "live audio is encoded as clips"
        samples = recording.window_samples(0)
        self._encode_samples(slot, samples)
        self._texts = {audio: text for audio, text in self._texts.items() if audio in self._audio}
        self._texts[self._audio[slot]] = words_of(samples[CONTEXT_SAMPLES:][: recording.received_samples])

    def next_token(self, audio: str, prefix: Sequence[int], sampling: Sampling | None = None) -> int:
        text = self._texts[audio]
        if NO_TIMESTAMPS in prefix:
            text = [token for token in text if token < TIME]
        start = len(prefix) - 1 - prefix[::-1].index(self.vocabulary.start_of_transcript)
        generated = [token for token in prefix[start + 1 :] if not END < token < TIME]
        words = [token for token in generated if token < TIME]
        wrong = self._hash("error", self._seed, audio, prefix) % 1000 < 1000 * self._error_rate
        if wrong or sampling is not None or words != [token for token in text if token < TIME][: len(words)]:
            return super().next_token(audio, prefix, sampling)
        places = [place for place, token in enumerate(text) if token < TIME]
        after = places[len(words) - 1] + 1 if words else 0
        num_times = next((i for i, token in enumerate(reversed(generated)) if token < TIME), len(generated))
        following = text[after : places[len(words)] + 1] if len(words) < len(places) else [END]
        return following[min(num_times, len(following) - 1)]

    def _score(self, row: Row) -> Scores:
        assert row.probe is None or not self._fed[row.slot], "a probed row must be the first in its slot"
        return super()._score(row)


class SpeechOrNoiseModel(SpeechModel):
    """Transcribes speech as :class:`SpeechModel` does, and other audio as the scripted model does."""

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        if not start_frame and recording.is_complete and is_speech(recording):
            super().encode(slot, recording, start_frame)
        else:
            ScriptedModel.encode(self, slot, recording, start_frame)

    def next_token(self, audio: str, prefix: Sequence[int], sampling: Sampling | None = None) -> int:
        model = super() if audio in self._texts else super(SpeechModel, self)
        return model.next_token(audio, prefix, sampling)


def is_speech(recording: Recording) -> bool:
    """Return whether loudness rarely changes, as in words; silence counts as speech."""
    samples = recording.window_samples(0)[CONTEXT_SAMPLES:][: recording.received_samples]
    return np.count_nonzero(np.diff(np.abs(samples))) < len(samples) / 1_000 + 10


def words_of(samples: NDArray[np.float32]) -> list[int]:
    """Return the tokens of a clip, timestamps included."""
    loudness = np.abs(samples)
    ends = [*(np.flatnonzero(loudness[1:] != loudness[:-1]) + 1).tolist(), len(loudness)]
    tokens, start, num_words = [TIME], 0, 0
    for end in ends:
        length, begin, start = end - start, start, end
        is_cut = end == len(loudness) and length < WORD_SAMPLES - TOLERANCE_SAMPLES
        if not loudness[begin] or (length < TOLERANCE_SAMPLES and (begin == 0 or is_cut)):
            continue
        word = (round(float(loudness[begin]) * 32_768) - QUIETEST) // LOUDER
        tokens.append((word + 7 + length // 1_000 if is_cut else word) % NUM_TEXT)
        num_words += 1
        if num_words % SENTENCE_WORDS == 0 and end < len(loudness):
            tokens += [TIME + round(end / HOP_SAMPLES / FRAMES_PER_TIMESTAMP)] * 2
    return [*tokens, END]


class EnergyVad:
    """Replaces silero-vad, and its streams: any sound is speech."""

    def open(self) -> EnergyVad:
        return self

    def __call__(self, frame: NDArray[np.float32]) -> float:
        return float(np.abs(frame).max() > 0.01)


@cache
def talk(spans: tuple[tuple[float, float], ...] = SPANS, length_s: float = LENGTH_S) -> bytes:
    """Return audio with different words in each span, and silence between them."""
    audio = bytearray(round(length_s * SAMPLE_RATE) * 2)
    for seed, (begin_s, end_s) in enumerate(spans):
        begin, end = round(begin_s * SAMPLE_RATE) * 2, round(end_s * SAMPLE_RATE) * 2
        audio[begin:end] = speech(end_s - begin_s, seed)[: end - begin]
    return bytes(audio)


def samples_of(pcm: bytes) -> NDArray[np.float32]:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / 32768


@cache
def spoken_utterances(pcm: bytes) -> dict[int, list[int]]:
    """Return the words of each utterance that the endpointer finds; steps do not change them."""
    marker = VoiceMarker(Endpointer(EndpointingOptions()), EnergyVad)
    samples, begin = samples_of(pcm), 0
    texts: dict[int, list[int]] = {}
    for mark in [*marker.append(pcm), *marker.end_utterance()]:
        if mark.event is VoiceEvent.BEGIN:
            begin = mark.sample
        elif mark.event is VoiceEvent.END:
            clip = samples[begin : mark.sample]
            texts[len(texts) + 1] = [token for token in words_of(clip) if token < END]
    return texts
