"""Keep audio until its text is final, so that it can be decoded again."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.types import SAMPLE_RATE, EndUtterance

PIECE_BYTES = 3_200  # a tenth of a second
MAX_UNREAD_S = 30.0


class KeptAudio:
    """Canonical PCM from some sample on, read from any sample that is kept."""

    def __init__(self, start_sample: int = 0, max_unread_s: float = MAX_UNREAD_S) -> None:
        self._max_unread_s = max_unread_s
        self._pcm = bytearray()
        self._start_sample = self._read_sample = start_sample
        self._ends: list[int] = []  # samples at which the client has ended utterances
        self._num_answered = 0  # ends before these
        self.is_complete = False
        self._has_grown = asyncio.Event()
        self._is_read = asyncio.Event()

    @property
    def num_samples(self) -> int:
        return len(self._pcm) // BYTES_PER_SAMPLE

    def allow_unread(self, seconds: float) -> None:
        self._max_unread_s = seconds
        self._is_read.set()

    async def put(self, pcm: bytes) -> None:
        """Append audio; wait while more of it is unread than may be. After :meth:`finish` it is ignored."""
        if self.is_complete:
            return
        self._pcm += pcm
        self._has_grown.set()
        while (
            not self.is_complete and self._end_sample - self._read_sample > self._max_unread_s * SAMPLE_RATE
        ):
            self._is_read.clear()
            await self._is_read.wait()

    def end_utterance(self) -> None:
        if not self.is_complete:
            self._ends.append(self._end_sample)
            self._has_grown.set()

    async def continues_after(self, sample: int) -> bool:
        """Wait for audio from a sample on, or for the end; return whether there is any."""
        while self._end_sample <= sample and not self.is_complete:
            self._has_grown.clear()
            await self._has_grown.wait()
        return self._end_sample > sample

    def finish(self) -> None:
        self.is_complete = True
        self._has_grown.set()
        self._is_read.set()

    def forget_before(self, sample: int) -> None:
        """Free the audio before a sample, as far as it is read."""
        num_samples = max(0, min(sample, self._read_sample) - self._start_sample)
        num_bytes = min(num_samples * BYTES_PER_SAMPLE, len(self._pcm))
        del self._pcm[:num_bytes]
        self._start_sample += num_bytes // BYTES_PER_SAMPLE

    def forget_ends(self, num_answered: int) -> None:
        """Forget the ends that were answered, also before this audio began."""
        del self._ends[: max(0, num_answered - self._num_answered)]
        self._num_answered = max(self._num_answered, num_answered)

    def forget_ends_before(self, sample: int) -> None:
        self.forget_ends(self._num_answered + bisect_left(self._ends, sample))

    def pieces(
        self, sample: int, piece_bytes: Callable[[], int] = lambda: PIECE_BYTES
    ) -> AsyncGenerator[bytes | EndUtterance]:
        """Return the audio from a sample on as it arrives, to its end.

        There is one reader at a time; the audio is kept for it from now on. An :class:`EndUtterance` comes
        where the client has ended one, unless that is answered. ``piece_bytes`` returns the size of the next
        piece.
        """
        self._read_sample = sample = max(sample, self._start_sample)
        return self._pieces(sample, piece_bytes)

    async def _pieces(
        self, sample: int, piece_bytes: Callable[[], int]
    ) -> AsyncGenerator[bytes | EndUtterance]:
        number = self._num_answered  # the next end's
        while True:
            number = max(number, self._num_answered)
            end = next(iter(self._ends[number - self._num_answered :]), None)
            begin = (sample - self._start_sample) * BYTES_PER_SAMPLE
            num_bytes = piece_bytes()
            if end is not None:
                num_bytes = min(num_bytes, max(0, end - sample) * BYTES_PER_SAMPLE)
            piece = bytes(self._pcm[begin : begin + num_bytes])
            if end is not None and end <= sample:
                number += 1
                yield EndUtterance()
            elif piece:
                sample += len(piece) // BYTES_PER_SAMPLE
                self._read_sample = sample
                self._is_read.set()
                yield piece
            elif self.is_complete:
                return
            else:
                self._has_grown.clear()
                await self._has_grown.wait()

    @property
    def _end_sample(self) -> int:
        return self._start_sample + self.num_samples
