"""Collect what a recording lacks: damage, and audio that its container states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from specwhisper.errors import InvalidAudio

Warn = Callable[[str], None]  # called with each warning, a sentence

MAX_NAMED_PLACES = 5
MAX_SILENCE_S = 3_600.0  # between what was recorded: times may lie, and hours of silence fit into a few bytes
NEAR_S = 0.5  # losses that are as near to each other are one place


def ignore(_warning: str) -> None:
    """Ignore a warning that another reader of the same recording reports."""


class Warnings:
    """Collects the warnings about a recording, each once; raises them if it is strict."""

    def __init__(self, *, is_strict: bool = False) -> None:
        self._sentences: list[str] = []
        self.is_strict = is_strict

    def __call__(self, sentence: str) -> None:
        if self.is_strict:
            raise InvalidAudio(f"{sentence} Without strict, the rest is transcribed.")
        if sentence not in self._sentences:
            self._sentences.append(sentence)

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentences)


class Damage:
    """Notes what a recording lacks while it is decoded; ``decoded_s`` is its length so far."""

    def __init__(self, name: str, warn: Warn) -> None:
        self.decoded_s = 0.0
        self.name = name
        self.warn = warn
        self._sentences: list[str] = []
        self._lost: list[tuple[float, float]] = []  # position in what was decoded, and seconds
        self._num_samples = self._num_no_numbers = 0
        self._first_no_number_s = 0.0
        self._left_silence_s = MAX_SILENCE_S

    def allowed(self, silence_s: float) -> float:
        """Return how much of a silence may be written here: all, or none and a warning."""
        if silence_s <= self._left_silence_s:
            self._left_silence_s -= silence_s
            return silence_s
        self._sentences.append(
            f"{self.name} has a gap of {silence_s:.0f} s at {self.decoded_s:.1f} s, which is left out: a "
            f"recording gets at most {MAX_SILENCE_S:.0f} s of silence by its container's times."
        )
        return 0.0

    def lose(self, lost_s: float) -> None:
        if self._lost and self.decoded_s - self._lost[-1][0] < NEAR_S:
            at_s, before_s = self._lost.pop()
            self._lost.append((at_s, before_s + lost_s))
        else:
            self._lost.append((self.decoded_s, lost_s))

    def jump(self, jump_s: float) -> None:
        self._sentences.append(
            f"{self.name} has times that jump by {jump_s:.1f} s at {self.decoded_s:.1f} s: audio may be "
            "missing."
        )

    def finite(self, frames: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
        """Return samples ``[frames, channels]`` with 0 for those that are not numbers."""
        self._num_samples += frames.size
        is_number = np.isfinite(frames)
        if is_number.all():
            return frames
        if not self._num_no_numbers:
            self._first_no_number_s = self.decoded_s + int(np.argmin(is_number.all(axis=1))) / rate
        self._num_no_numbers += int(np.count_nonzero(~is_number))
        return np.where(is_number, frames, np.float32(0))

    def fall_short(self, decoded_s: float, stated_s: float) -> None:
        """Note that the end is missing, which counts as one loss with what was lost just before it."""
        if self._lost and decoded_s - self._lost[-1][0] < NEAR_S:
            self._lost.pop()
        digits = 1 if stated_s - decoded_s >= 0.1 else 4
        self._sentences.append(
            f"{self.name} is cut off or damaged: its container states {stated_s:.{digits}f} s, and "
            f"{decoded_s:.{digits}f} s could be decoded."
        )

    def stop(self, what: str = "what follows") -> None:
        self._sentences.append(f"{self.name} is damaged at {self.decoded_s:.1f} s: {what} cannot be decoded.")

    def report(self) -> None:
        """Warn of what was noted; raise :class:`InvalidAudio` if no sample is a number."""
        if self._num_samples and self._num_no_numbers == self._num_samples:
            raise InvalidAudio(f"{self.name} holds no samples that are finite numbers.")
        for sentence in self._sentences[:MAX_NAMED_PLACES]:
            self.warn(sentence)
        if (others := len(self._sentences) - MAX_NAMED_PLACES) > 0:
            self.warn(f"{self.name} has {others} more parts that lack something.")
        if self._lost:
            places = [f"{at_s:.1f} s" for at_s, _ in self._lost[:MAX_NAMED_PLACES]]
            if others := len(self._lost) - len(places):
                places.append(f"{others} more places")
            *most, last = places
            where = f"{', '.join(most)} and {last}" if most else last
            lost_s = sum(lost_s for _, lost_s in self._lost)
            self.warn(f"{self.name} is damaged: about {lost_s:.2f} s are missing, at {where}.")
        if self._num_no_numbers:
            self.warn(
                f"{self.name} has samples that are not finite numbers: {self._num_no_numbers} of them, the "
                f"first at {self._first_no_number_s:.1f} s. They are silence."
            )
