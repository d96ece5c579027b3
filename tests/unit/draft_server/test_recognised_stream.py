"""A recogniser gets the audio that the target still needs, and its times count from there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from math import inf, nan

import numpy as np
import pytest

from specwhisper.engine.draft_state import Drafted
from specwhisper.types import SAMPLE_RATE, AudioChunk, TimedHint, VoiceEvent, VoiceMark, Window, WindowOpened
from specwhisper_draft_server.recognisers.protocol import Recognised
from specwhisper_draft_server.recognisers.stream import RecognisedStream


class Recording:
    """Records its calls, and returns their number."""

    name = "recording"

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.num_closed = 0

    def open(self, language: str | None, start_s: float) -> Recording:
        self.calls.append(("open", language, start_s))
        return self

    def close(self) -> None:
        self.num_closed += 1

    def accept(self, pcm: bytes, *, is_pause: bool, is_last: bool) -> list[Recognised]:
        self.calls.append((len(pcm) / 2 / SAMPLE_RATE, is_pause, is_last))
        return [Recognised(0.5, str(len(self.calls)))]


def chunk(start_s: float, length_s: float, *marks: VoiceEvent, is_last: bool = False) -> AudioChunk:
    start_sample, num_samples = round(start_s * SAMPLE_RATE), round(length_s * SAMPLE_RATE)
    voice = tuple(VoiceMark(event, start_sample) for event in marks)
    return AudioChunk(start_sample, bytes(2 * num_samples), is_last, voice)


def window_at(start_s: float) -> WindowOpened:
    return WindowOpened(Window(1, round(start_s * 100), 3_000, (1,), 40))


@asynccontextmanager
async def opened(recogniser: Recording, *messages) -> AsyncIterator[tuple[RecognisedStream, asyncio.Queue]]:
    """Send messages before it runs, so that they arrive together."""
    drafted: asyncio.Queue[Drafted] = asyncio.Queue()
    with ThreadPoolExecutor(1) as executor:
        stream = RecognisedStream(
            "session", partial(recogniser.open, "en"), executor, drafted.put_nowait, lambda: None
        )
        for message in messages:
            stream.send(message)
        running = asyncio.create_task(stream.run())
        yield stream, drafted
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_audio_that_has_arrived_is_one_call_of_about_a_second():
    recogniser = Recording()
    async with opened(recogniser, *(chunk(i / 10, 0.1) for i in range(15))) as (_, drafted):
        hints = [(await drafted.get()).hint for _ in range(2)]
    assert recogniser.calls == [("open", "en", 0.0), (1.0, False, False), (0.5, False, False)]
    assert hints == [TimedHint(8_000, "2"), TimedHint(8_000, "3")]


async def test_the_recogniser_knows_of_a_pause_and_of_the_end():
    recogniser = Recording()
    messages = [
        chunk(0, 0.1, VoiceEvent.BEGIN),
        chunk(0.1, 0.1, VoiceEvent.CUT),
        chunk(0.2, 0.1),
        chunk(0.3, 0.0, is_last=True),
    ]
    async with opened(recogniser, *messages) as (_, drafted):
        for _ in range(2):
            await drafted.get()
    assert recogniser.calls[1:] == [(0.2, True, False), (0.1, False, True)]


async def test_audio_before_the_targets_window_is_skipped():
    recogniser = Recording()
    async with opened(recogniser, chunk(0, 1.0)) as (stream, drafted):
        assert (await drafted.get()).hint == TimedHint(8_000, "2")
        stream.send(window_at(5.0))
        for start_s in range(1, 8):
            stream.send(chunk(start_s, 1.0))
        assert (await drafted.get()).hint == TimedHint(5 * SAMPLE_RATE + 8_000, "4")
    assert ("open", "en", 5.0) in recogniser.calls
    assert recogniser.num_closed == 2


def stop() -> list[Recognised]:
    return [next(iter(()))]


@pytest.mark.parametrize(
    "result",
    [
        stop,
        sys.exit,
        lambda: None,
        lambda: ["text"],
        lambda: [(None, "a")],
        lambda: [(0.0, None)],
        lambda: [(0.0, b"a")],
        lambda: [(nan, "a")],
        lambda: [(inf, "a")],
        lambda: [(1e300, "a")],
        lambda: [(0.0, "\ud800")],
    ],
)
async def test_anything_but_texts_with_times_is_a_failure(result):
    recogniser = Recording()
    recogniser.accept = lambda pcm, **_: result()
    async with opened(recogniser, chunk(0, 1.0)) as (stream, drafted):
        assert (await drafted.get()).report.choice.reason == "the recogniser has failed"
        assert stream.has_failed


async def test_the_start_of_a_text_that_is_too_long_is_taken():
    recogniser = Recording()
    recogniser.accept = lambda pcm, **_: [(0.0, "ä" * 2_001)]
    async with opened(recogniser, chunk(0, 1.0)) as (_, drafted):
        assert (await drafted.get()).hint == TimedHint(0, "ä" * 2_000)


async def test_an_iterator_a_numpy_number_and_a_negative_time_are_taken():
    recogniser = Recording()
    recogniser.accept = lambda pcm, **_: iter([(np.float32(-1.0), "a"), (1, "b")])
    async with opened(recogniser, chunk(2.0, 1.0)) as (_, drafted):
        hints = [(await drafted.get()).hint for _ in range(2)]
    assert hints == [TimedHint(2 * SAMPLE_RATE, "a"), TimedHint(3 * SAMPLE_RATE, "b")]


async def test_audio_of_a_long_silence_does_not_pile_up_for_a_slow_recogniser():
    recogniser = Recording()
    async with opened(recogniser, *(chunk(start_s, 1.0) for start_s in range(300))) as (_, drafted):
        assert (await drafted.get()).hint == TimedHint(180 * SAMPLE_RATE + 8_000, "2")


async def test_a_failure_is_reported_once_and_nothing_follows():
    async with opened(Recording(), chunk(0, 1.0)) as (stream, drafted):
        await drafted.get()
        stream.fail(RuntimeError("no"))
        stream.fail(RuntimeError("no"))
        stream.send(chunk(1, 1.0))
        assert (await drafted.get()).report.choice.reason == "the recogniser has failed"
        assert stream.has_failed and drafted.empty()
