"""A model without weights: the next token is a hash of the audio and of all tokens in its slot.

It stores the tokens that it was fed, so that a missing rollback or a repeated token changes its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.recording import Recording
from specwhisper.errors import UnsupportedOption
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.weights import StoredArray, Weights
from specwhisper.model.choosing import ProbeResult, Row, Scores
from specwhisper.model.sampling import Sampling
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import SAMPLE_RATE, Window, WordAlignment


def weights_in_memory(arrays: Mapping[str, NDArray[Any]]) -> Weights:
    """Return arrays as weights; uint16 are the bits of bfloat16."""
    return Weights(
        {name: StoredArray(array.shape, partial(np.asarray, array)) for name, array in arrays.items()}
    )


NUM_TEXT = 24
END = NUM_TEXT
SPECIAL = ("endoftext", "startoftranscript", "en", "de", "translate", "transcribe", "startofprev", "nospeech")
NO_TIMESTAMPS = END + len(SPECIAL)
TIME = NO_TIMESTAMPS + 1

VOCABULARY = Vocabulary(
    tokens=(
        *(chr(ord("a") + i) for i in range(NUM_TEXT)),
        *(f"<|{name}|>" for name in SPECIAL),
        "<|notimestamps|>",
        *(f"<|{i * 0.02:.2f}|>" for i in range(1501)),
    ),
    end_of_text=END,
    start_of_transcript=END + 1,
    no_timestamps=NO_TIMESTAMPS,
    timestamp_begin=TIME,
    max_length=64,
    start_of_prev=END + SPECIAL.index("startofprev"),
    no_speech=END + SPECIAL.index("nospeech"),
)
MULTILINGUAL = replace(
    VOCABULARY,
    languages={code: END + SPECIAL.index(code) for code in ("en", "de")},
    tasks={name: END + SPECIAL.index(name) for name in ("transcribe", "translate")},
)


@cache
def recording(length_s: float, seed: int = 0) -> bytes:
    """Return noise of changing loudness as canonical PCM, so that all windows differ."""
    num_samples = int(length_s * SAMPLE_RATE)
    noise = np.random.default_rng(seed).normal(0, 0.05, num_samples) * (1 + np.linspace(0, 3, num_samples))
    return (np.clip(noise, -1, 1) * 32767).astype("<i2").tobytes()


class SlotModel:
    """A model without weights or word times, whose slots hold the tokens that they were fed."""

    num_mel_bins = 80
    max_windows = 1
    has_word_times = False

    def __init__(self, vocabulary: Vocabulary, num_slots: int, max_positions: int) -> None:
        self.vocabulary = vocabulary
        self.num_slots = num_slots
        self.max_positions = max_positions
        self._fed: list[list[int]] = [[] for _ in range(num_slots)]

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self._fed[slot] = []

    def rollback(self, slot: int, length: int) -> None:
        del self._fed[slot][length:]

    def length(self, slot: int) -> int:
        return len(self._fed[slot])

    def can_continue(self, prompt: Sequence[int]) -> bool:
        return True

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[WordAlignment, ...]]:
        raise UnsupportedOption("This model has no word times.")


class ScriptedModel(SlotModel):
    """Writes a text that depends only on audio and prefix.

    Parameters
    ----------
    error_rate : share of prefixes at which it differs from the same model without errors.
    """

    has_word_times = True

    def __init__(
        self,
        num_slots: int = 1,
        *,
        seed: int = 0,
        error_rate: float = 0.0,
        max_positions: int = 64,
        vocabulary: Vocabulary = VOCABULARY,
    ) -> None:
        super().__init__(vocabulary, num_slots, max_positions)
        self.num_forwards = 0
        self._seed = seed
        self._error_rate = error_rate
        self._audio = [""] * num_slots

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self._encode_samples(slot, recording.window_samples(start_frame))

    def _encode_samples(self, slot: int, samples: NDArray[np.float32]) -> None:
        self._audio[slot] = hashlib.blake2b(samples).hexdigest()
        self._fed[slot] = []

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        self.num_forwards += 1
        assert len({row.slot for row in rows}) == len(rows), "a slot may appear once in a forward pass"
        return [self._score(row) for row in rows]

    def _score(self, row: Row) -> Scores:
        fed = self._fed[row.slot]
        fed += row.tokens
        assert len(fed) <= self.max_positions, "a slot overflowed"
        ends = range(len(fed) - row.num_candidates, len(fed) + 1)
        audio = self._audio[row.slot]
        tokens = [self.next_token(audio, fed[:end], row.sampling) for end in ends]
        log_probs = [-(self._hash("log-prob", audio, fed[:end], row.sampling) % 100) / 100 for end in ends]
        probe_result = self._probe(audio) if row.probe is not None else None
        return Scores(tokens, log_probs, [1.0] * len(tokens), probe_result)

    def _probe(self, audio: str) -> ProbeResult:
        return ProbeResult(
            no_speech_prob=self._hash("silence", audio) % 100 / 100,
            language_probs={code: self._hash(code, audio) % 100 / 100 for code in self.vocabulary.languages},
        )

    def next_token(self, audio: str, prefix: Sequence[int], sampling: Sampling | None = None) -> int:
        if prefix[-1] >= TIME and prefix[-2] < TIME and len(prefix) > 3:
            return prefix[-1]  # timestamps come in pairs
        roll = self._hash(self._seed, audio, prefix)
        if sampling is not None:
            roll += self._hash(sampling)
        if (
            self._error_rate
            and self._hash("error", self._seed, audio, prefix) % 1000 < 1000 * self._error_rate
        ):
            roll += 1 + self._hash("other", prefix) % 1000
        kind = roll % 100
        if kind < 6:
            return END
        if kind < 12:
            return TIME + 400 + roll % 1000
        return roll % NUM_TEXT

    @staticmethod
    def _hash(*key: object) -> int:
        return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=7).digest())

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        return tuple((ord(letter) - ord("a")) % NUM_TEXT for letter in text)

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[WordAlignment, ...]]:
        """Return each letter as a word of 20 ms."""
        self._fed[slot] = [*window.prompt, *tokens[:-1]]
        start = window.start_sample
        words = tuple(
            WordAlignment(i, 1, start + 320 * i, start + 320 * (i + 1))
            for i, token in enumerate(tokens)
            if token < END
        )
        return lambda: words


def scripted_checkpoint(name: str = "scripted", **changes: Any) -> Checkpoint:
    """Return the checkpoint that a server sees for a scripted model."""
    checkpoint = Checkpoint(
        name=name,
        sizes=ModelSizes(*8 * [1], num_mel_bins=ScriptedModel.num_mel_bins),
        vocabulary=VOCABULARY,
        weights=weights_in_memory({}),
        weights_digest=f"digest of {name}",
    )
    return replace(checkpoint, **changes)
