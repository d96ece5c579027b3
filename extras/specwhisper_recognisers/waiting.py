"""Audio that waits for a recogniser, cut into the pieces that it asks for."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.types import SAMPLE_RATE, AudioChunk, VoiceEvent

MAX_PIECE_SAMPLES = SAMPLE_RATE  # if it asks for no length, so that sessions take turns


class Piece(NamedTuple):
    """Audio of a call: see :meth:`RecogniserStream.accept`."""

    start_sample: int
    pcm: bytes
    is_pause: bool
    is_last: bool

    @property
    def num_samples(self) -> int:
        return len(self.pcm) // BYTES_PER_SAMPLE

    @property
    def end_sample(self) -> int:
        return self.start_sample + self.num_samples


class WaitingAudio:
    """Audio that a recogniser is still to take.

    Parameters
    ----------
    piece_s : length of a piece. It is shorter at a pause and at the end of the audio. ``None`` gives
        whatever has arrived, up to a second.

    Attributes
    ----------
    start_sample : its first sample in the stream.
    """

    def __init__(self, piece_s: float | None = None) -> None:
        self.start_sample = 0
        self._is_gathered = piece_s is not None
        self._piece_samples = MAX_PIECE_SAMPLES if piece_s is None else round(piece_s * SAMPLE_RATE)
        self._pcm = bytearray()
        self._pauses: deque[int] = deque()  # samples at which speech pauses, or at which that is known
        self._has_ended = False

    @property
    def num_samples(self) -> int:
        return len(self._pcm) // BYTES_PER_SAMPLE

    @property
    def end_sample(self) -> int:
        return self.start_sample + self.num_samples

    def append(self, chunk: AudioChunk) -> None:
        if not self._pcm:
            self.start_sample = chunk.start_sample
        self._pcm += chunk.pcm
        self._has_ended = chunk.is_last
        for mark in chunk.marks:
            if mark.event in (VoiceEvent.CUT, VoiceEvent.END):
                is_here = self.start_sample < mark.sample < self.end_sample
                pause = mark.sample if is_here else self.end_sample  # it is known late
                self._pauses.append(max(pause, *self._pauses, 0))

    def skip_to(self, sample: int) -> None:
        num_skipped = min(sample - self.start_sample, self.num_samples)
        if num_skipped > 0:
            self._drop(num_skipped)
            while self._pauses and self._pauses[0] <= self.start_sample:
                self._pauses.popleft()

    def take(self) -> Piece | None:
        """Return the next piece, if there is enough audio for one."""
        start, end = self.start_sample, self.start_sample + self._piece_samples
        is_pause = bool(self._pauses) and self._pauses[0] <= end
        if is_pause:
            end = self._pauses[0]
            while self._pauses and self._pauses[0] == end:
                self._pauses.popleft()
        elif self.end_sample < end:
            if not self._has_ended and (self._is_gathered or not self._pcm):
                return None
            end = self.end_sample
        is_last = self._has_ended and end == self.end_sample and not self._pauses
        if is_last:
            self._has_ended = False  # it is said once
        pcm = bytes(self._pcm[: (end - start) * BYTES_PER_SAMPLE])
        self._drop(end - start)
        return Piece(start, pcm, is_pause, is_last)

    def _drop(self, num_samples: int) -> None:
        del self._pcm[: num_samples * BYTES_PER_SAMPLE]
        self.start_sample += num_samples
