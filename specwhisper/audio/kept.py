"""Audio that is kept until its text is final, so that it can be heard again elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.types import SAMPLE_RATE

PIECE_BYTES = 3_200  # a tenth of a second
MAX_UNREAD_SAMPLES = 30 * SAMPLE_RATE


class KeptAudio:
    """Canonical PCM from some sample on; written once, read from any sample that is still kept."""

    def __init__(self, start_sample: int = 0) -> None:
        self._pcm = bytearray()
        self._start_sample = self._read_sample = start_sample
        self._is_complete = False
        self._has_grown = asyncio.Event()
        self._is_read = asyncio.Event()

    @property
    def num_samples(self) -> int:
        """How much is kept."""
        return len(self._pcm) // BYTES_PER_SAMPLE

    @property
    def is_complete(self) -> bool:
        """Whether no audio follows."""
        return self._is_complete

    async def put(self, pcm: bytes) -> None:
        """Add audio, and wait while much of it was never read; behind its end there is none."""
        if self._is_complete:
            return
        self._pcm += pcm
        self._has_grown.set()
        while self._num_unread > MAX_UNREAD_SAMPLES and not self._is_complete:
            self._is_read.clear()
            await self._is_read.wait()

    async def goes_on_behind(self, sample: int) -> bool:
        """Wait for audio from a sample on, or for the end; tell whether there is any."""
        while self._end_sample <= sample and not self._is_complete:
            self._has_grown.clear()
            await self._has_grown.wait()
        return self._end_sample > sample

    def finish(self) -> None:
        """Say that no audio follows."""
        self._is_complete = True
        self._has_grown.set()
        self._is_read.set()

    def forget_before(self, sample: int) -> None:
        """Free what is final."""
        num_bytes = min(max(0, sample - self._start_sample) * BYTES_PER_SAMPLE, len(self._pcm))
        del self._pcm[:num_bytes]
        self._start_sample += num_bytes // BYTES_PER_SAMPLE

    async def pieces(self, sample: int, piece_bytes: int = PIECE_BYTES) -> AsyncGenerator[bytes]:
        """Give what there is from a sample on, and then what comes."""
        while True:
            sample = max(sample, self._start_sample)  # what is forgotten is passed over
            begin = (sample - self._start_sample) * BYTES_PER_SAMPLE
            piece = bytes(self._pcm[begin : begin + piece_bytes])
            if piece:
                sample += len(piece) // BYTES_PER_SAMPLE
                self._read_sample = max(self._read_sample, sample)
                self._is_read.set()
                yield piece
            elif self._is_complete:
                return
            else:
                self._has_grown.clear()
                await self._has_grown.wait()

    @property
    def _num_unread(self) -> int:
        return self._end_sample - self._read_sample

    @property
    def _end_sample(self) -> int:
        return self._start_sample + self.num_samples
