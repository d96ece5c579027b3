"""Mix the channels of audio to one, or take one of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from specwhisper.errors import InvalidAudio
from specwhisper.selection import MIX, SIDES

Weights = NDArray[np.float32]  # each channel's share of the mix
PIECE_S = 0.01
KEPT = 0.8  # share of the power before a piece that counts with it: 50 ms decide
OPPOSITE = 16  # times as much power in the louder channel as in the mix: the speech cancels itself out
MIN_WARNED_S = 1.0


class Mixer:
    """Makes one channel of several, however the audio is cut into blocks.

    Stereo is averaged, but where its channels cancel each other out (one has the opposite phase), the louder
    one is taken: always the one that was louder where this began.

    ``channel``: "mix", or the one that is taken: "left", "right", or its number, counted from 1.
    """

    def __init__(self, channel: str = MIX) -> None:
        self._channel = channel
        self._louder: int | None = None
        self._is_opposite = False
        self._power, self._of_piece = np.zeros(3), np.zeros(3)  # left, right and mix
        self._num_in_piece = 0
        self._length_s = self._opposite_s = self._first_opposite_s = 0.0

    def __call__(
        self, frames: NDArray[np.float32], rate: int, weights: Weights | None = None
    ) -> NDArray[np.float32]:
        """Return one channel of ``[frames, channels]``; weights are for channels in known places."""
        num_channels = frames.shape[1]
        self.check(num_channels)
        if self._channel != MIX:
            return frames[:, self._number - 1]
        if num_channels == 1:
            return frames[:, 0]
        if weights is not None:
            return frames @ weights
        mixed: NDArray[np.float32] = frames.mean(axis=1, dtype=np.float32)
        return self._audible(frames, mixed, rate) if num_channels == 2 and len(frames) else mixed

    @property
    def _number(self) -> int:
        return SIDES.get(self._channel) or int(self._channel)

    def check(self, num_channels: int) -> None:
        if self._channel != MIX and self._number > num_channels:
            raise InvalidAudio(
                f"There is no channel '{self._channel}': the number of channels is {num_channels}."
            )

    def report(self, name: str, warn: Callable[[str], None]) -> None:
        if self._louder is not None and self._opposite_s >= MIN_WARNED_S:
            side = list(SIDES)[self._louder]
            warn(
                f"{name} has channels in opposite phase, from {self._first_opposite_s:.1f} s on for "
                f"{self._opposite_s:.1f} s: their mix would be silence, so the {side} one was used there."
            )

    def _audible(
        self, stereo: NDArray[np.float32], mixed: NDArray[np.float32], rate: int
    ) -> NDArray[np.float32]:
        """Return the mix, or the louder channel where the pieces before show opposite phase."""
        size = max(1, round(rate * PIECE_S))
        starts = [0, *range(max(1, size - self._num_in_piece), len(mixed), size)]  # 1: at another rate
        squares = np.square(np.column_stack((stereo, mixed)), dtype=np.float64)
        takes_louder = []
        for number, power in enumerate(np.add.reduceat(squares, starts)):
            if number:
                self._judge()
            takes_louder.append(self._is_opposite)
            self._of_piece += power
        self._num_in_piece = (self._num_in_piece + len(mixed)) % size
        if not self._num_in_piece:
            self._judge()
        if not any(takes_louder):
            return mixed
        is_louder = np.repeat(takes_louder, np.diff([*starts, len(mixed)]))
        self._opposite_s += int(is_louder.sum()) / rate
        return np.where(is_louder, stereo[:, self._louder or 0], mixed)

    def _judge(self) -> None:
        """Judge the phase of the next piece by those that are complete."""
        self._power = KEPT * self._power + self._of_piece
        self._of_piece = np.zeros(3)
        self._length_s += PIECE_S
        left, right, mix = self._power.tolist()
        self._is_opposite = mix * OPPOSITE < max(left, right)
        if self._is_opposite and self._louder is None:
            self._louder, self._first_opposite_s = int(right > left), self._length_s
