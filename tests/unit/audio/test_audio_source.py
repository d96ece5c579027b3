"""A recording is read only while its caller waits for it."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from specwhisper.audio import turns
from specwhisper.audio.source import AudioSource

SECOND = bytes(32_000)
LENGTH_S = 120
BINS = (80,)


class Decoder:
    """Decodes two minutes, by seconds; the reading thread waits for ``gate``."""

    def __init__(self) -> None:
        self.has_begun, self.gate = threading.Event(), threading.Event()
        self.num_read = 0
        self.is_closed = False

    def __call__(self) -> Iterator[bytes]:
        self.num_read, self.is_closed = 0, False
        try:
            for _ in range(LENGTH_S):
                self.has_begun.set()
                self.gate.wait()
                self.num_read += 1
                yield SECOND
        finally:
            self.is_closed = True


@pytest.fixture
async def decoder(monkeypatch: pytest.MonkeyPatch) -> Decoder:
    """A decoder; one thread works at a time, so that calls run in order."""
    monkeypatch.setattr(turns.TURNS, "_max_working", 1)
    return Decoder()


async def cancel(reading: asyncio.Task, decoder: Decoder) -> None:
    """Cancel a task while the reading thread is within a block."""
    with ThreadPoolExecutor(1) as other_pool:
        await asyncio.get_running_loop().run_in_executor(other_pool, decoder.has_begun.wait)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    decoder.gate.set()
    await reader_is_idle()


async def reader_is_idle() -> None:
    """Wait until no thread works; it has closed the decoder."""
    await turns.in_turn(turns.Turn(), int)


async def test_a_scan_ends_when_its_caller_is_cancelled(decoder):
    decoder.gate.set()
    source = await AudioSource.open(decoder)
    await reader_is_idle()
    assert (source.fits_one_window, decoder.is_closed) == (False, True)
    decoder.gate.clear()
    decoder.has_begun.clear()
    await cancel(asyncio.create_task(source.log_mel_max(BINS)), decoder)
    assert (decoder.num_read, decoder.is_closed) == (1, True)
    assert source.duration_s is None
    # A caller that is not cancelled reads the whole recording.
    assert (await source.log_mel_max(BINS)).keys() == set(BINS)
    assert (decoder.num_read, source.duration_s) == (LENGTH_S, LENGTH_S)


async def test_opening_ends_when_its_caller_is_cancelled(decoder):
    await cancel(asyncio.create_task(AudioSource.open(decoder)), decoder)
    assert (decoder.num_read, decoder.is_closed) == (1, True)
