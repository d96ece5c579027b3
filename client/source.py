"""Recordings on disk as a client sends them: canonical PCM in small pieces, decoded beside the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.decode import decode_file
from specwhisper.audio.scan import log_mel_max
from specwhisper.types import WINDOW_SAMPLES

PathLike = str | os.PathLike[str]

MESSAGE_BYTES = 32 * 1024  # one second of audio: candidates never queue behind much of it


class FileSource:
    """A file, read no further ahead than its consumer is; long ones are decoded twice, never held whole."""

    def __init__(self, path: PathLike, short_pcm: bytes | None) -> None:
        self._path = path
        self._short_pcm = short_pcm

    @classmethod
    async def open(cls, path: PathLike) -> FileSource:
        """Decode a file's first 30 s; it is held if that is all there is."""
        return cls(path, await asyncio.to_thread(_decode_if_short, path))

    @property
    def fits_one_window(self) -> bool:
        """Whether the recording has at most 30 s, so that its first window tells its loudest moment."""
        return self._short_pcm is not None

    async def log_mel_max(self, num_mel_bins: Iterable[int]) -> dict[int, float]:
        """Listen to all of it for the loudest moment."""
        return await asyncio.to_thread(log_mel_max, decode_file(self._path), num_mel_bins)

    async def messages(self) -> AsyncIterator[bytes]:
        """Give the recording in pieces of at most 32 KiB."""
        blocks: Iterator[bytes] = decode_file(self._path)
        if self._short_pcm is not None:
            blocks = iter([self._short_pcm])
        while pcm := await asyncio.to_thread(next, blocks, b""):
            for start in range(0, len(pcm), MESSAGE_BYTES):
                yield pcm[start : start + MESSAGE_BYTES]


def _decode_if_short(path: PathLike) -> bytes | None:
    """Give the whole recording if it fits into one window."""
    pcm = bytearray()
    for block in decode_file(path):
        pcm += block
        if len(pcm) > WINDOW_SAMPLES * BYTES_PER_SAMPLE:
            return None
    return bytes(pcm)
