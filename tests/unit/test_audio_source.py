"""A recording is read while its caller waits for it, and no further."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from specwhisper.audio.source import AudioSource

SECOND = bytes(32_000)
LENGTH_S = 120
BINS = (80,)


class Decoder:
    """Decodes two minutes, a second at a time; the thread that reads waits at a gate in the first one."""

    def __init__(self) -> None:
        self.is_there, self.gate = threading.Event(), threading.Event()
        self.num_taken = 0
        self.is_closed = False

    def __call__(self) -> Iterator[bytes]:
        self.num_taken, self.is_closed = 0, False
        try:
            for _ in range(LENGTH_S):
                self.is_there.set()
                self.gate.wait()
                self.num_taken += 1
                yield SECOND
        finally:
            self.is_closed = True


@pytest.fixture
async def decoder() -> Decoder:
    """A decoder; the pool has one thread, so that what is asked next waits for what runs."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    return Decoder()


async def left(reading: asyncio.Task, decoder: Decoder) -> None:
    """Leave while the thread is in the midst of a block."""
    with ThreadPoolExecutor(1) as apart:
        await asyncio.get_running_loop().run_in_executor(apart, decoder.is_there.wait)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    decoder.gate.set()
    await has_let_go()


async def has_let_go() -> None:
    """The pool's only thread is free: it answers before it lets go of what it has read."""
    await asyncio.to_thread(int)


async def test_a_scan_ends_when_its_caller_is_cancelled(decoder):
    decoder.gate.set()
    source = await AudioSource.open(decoder)
    await has_let_go()
    assert (source.fits_one_window, decoder.is_closed) == (False, True)
    decoder.gate.clear()
    decoder.is_there.clear()
    await left(asyncio.create_task(source.log_mel_max(BINS)), decoder)
    assert (decoder.num_taken, decoder.is_closed) == (1, True)
    assert source.duration_s is None
    # A caller that is not cancelled gets all of it.
    assert (await source.log_mel_max(BINS)).keys() == set(BINS)
    assert (decoder.num_taken, source.duration_s) == (LENGTH_S, LENGTH_S)


async def test_opening_ends_when_its_caller_is_cancelled(decoder):
    await left(asyncio.create_task(AudioSource.open(decoder)), decoder)
    assert (decoder.num_taken, decoder.is_closed) == (1, True)
