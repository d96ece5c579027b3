"""A recording for a sender: canonical PCM in pieces, decoded in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TypeVar

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.recording import log_mel_max
from specwhisper.audio.speech import SpeechMap, find_speech, only_speech
from specwhisper.audio.turns import Turn, in_turn
from specwhisper.options import Padding
from specwhisper.selection import VadOptions
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

PIECE_BYTES = 32 * 1024  # one second of audio: candidates never wait for more of it

Decode = Callable[[], Iterator[bytes]]
T = TypeVar("T")


class AudioSource:
    """A recording that is read as its consumer needs it.

    Long recordings are decoded twice, and never held whole.

    Parameters
    ----------
    decode : yields the recording as canonical PCM, from its beginning at each call.
    short_pcm : the recording if it has at most 30 s.
    speech : where its speech lies, if it consists of the speech of a longer one.
    """

    def __init__(self, decode: Decode, short_pcm: bytes | None, speech: SpeechMap | None = None) -> None:
        self._decode = decode
        self._short_pcm = short_pcm
        self.speech = speech
        self._num_scanned_bytes = 0

    @classmethod
    async def open(cls, decode: Decode, vad: VadOptions | None = None) -> AudioSource:
        """Decode a recording's first 30 s; a recording of at most that length is kept.

        With ``vad`` all of it is decoded first, to find its speech, and the source has only that.
        """
        speech = None
        if vad is not None:
            speech = await _in_thread(partial(find_speech, options=vad), decode())
            decode = partial(only_speech, decode, speech)
        return cls(decode, await _in_thread(pcm_if_short, decode()), speech)

    @property
    def fits_one_window(self) -> bool:
        """Whether the recording has at most 30 s: one window has its log-mel maximum."""
        return self._short_pcm is not None

    @property
    def duration_s(self) -> float | None:
        """Length of the recording, once all of it was decoded; silence included."""
        if self.speech is not None:
            return self.speech.duration_s
        num_bytes = len(self._short_pcm) if self._short_pcm is not None else self._num_scanned_bytes
        return num_bytes / BYTES_PER_SAMPLE / SAMPLE_RATE or None

    async def log_mel_max(
        self, num_mel_bins: Iterable[int], padding: Padding = Padding.SILENCE
    ) -> dict[int, float]:
        """Decode all of it, and return its log-mel maximum by number of mel bins."""
        num_bytes = 0

        def counted(blocks: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal num_bytes
            for pcm in blocks:
                num_bytes += len(pcm)
                yield pcm

        loudest = await _in_thread(
            lambda blocks: log_mel_max(counted(blocks), num_mel_bins, padding), self._decode()
        )
        self._num_scanned_bytes = num_bytes
        return loudest

    async def pieces(self, start_sample: int = 0) -> AsyncIterator[bytes]:
        """Yield the recording from a sample on in pieces of at most 32 KiB."""
        blocks = self._decode() if self._short_pcm is None else iter([self._short_pcm])
        num_skipped = start_sample * BYTES_PER_SAMPLE
        turn = Turn()
        while (pcm := await in_turn(turn, next, blocks, None)) is not None:
            for start in range(min(num_skipped, len(pcm)), len(pcm), PIECE_BYTES):
                yield pcm[start : start + PIECE_BYTES]
            num_skipped = max(0, num_skipped - len(pcm))


async def _in_thread(read: Callable[[Iterator[bytes]], T], blocks: Iterator[bytes]) -> T:
    """Read blocks in a thread, in turns with those of other recordings.

    The thread stops at the next block once the caller is cancelled.
    """
    is_awaited = True
    turn = Turn()

    def awaited() -> Iterator[bytes]:
        for pcm in blocks:
            if not is_awaited:
                return
            yield pcm
            turn.pass_on()

    def read_and_close() -> T:
        try:
            return read(awaited())
        finally:
            if isinstance(blocks, Generator):
                blocks.close()  # within the turn, and not whenever the thread forgets it

    try:
        return await in_turn(turn, read_and_close)
    finally:
        is_awaited = False


def pcm_if_short(blocks: Iterator[bytes]) -> bytes | None:
    pcm = bytearray()
    for block in blocks:
        pcm += block
        if len(pcm) > WINDOW_SAMPLES * BYTES_PER_SAMPLE:
            return None
    return bytes(pcm)
