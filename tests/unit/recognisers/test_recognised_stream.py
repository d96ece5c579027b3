"""A recogniser gets the audio that the target still needs, and its times count from there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from math import nan

import numpy as np
import pytest

from specwhisper.engine.draft_session import Drafted
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Commit,
    CompletePiece,
    TimedHint,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
)
from specwhisper_recognisers.protocol import Recognised
from specwhisper_recognisers.recognising import RecognisedStream


class Recording:
    """Records its calls, and returns their number."""

    name = "recording"

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.waiting_s: list[float] = []
        self.num_closed = 0

    def open(self, language: str | None, start_s: float, *, is_live: bool) -> Recording:
        self.calls.append(("open", language, start_s, is_live))
        return self

    def close(self) -> None:
        self.num_closed += 1

    def accept(self, pcm: bytes, *, is_pause: bool, is_last: bool, waiting_s: float) -> list[Recognised]:
        self.calls.append((len(pcm) / 2 / SAMPLE_RATE, is_pause, is_last))
        self.waiting_s.append(waiting_s)
        return [Recognised(0.5, str(len(self.calls)))]


def chunk(start_s: float, length_s: float, *marks: VoiceEvent, is_last: bool = False) -> AudioChunk:
    start_sample, num_samples = round(start_s * SAMPLE_RATE), round(length_s * SAMPLE_RATE)
    voice = tuple(VoiceMark(event, start_sample) for event in marks)
    return AudioChunk(start_sample, bytes(2 * num_samples), is_last, voice)


def window_at(start_s: float) -> WindowOpened:
    return WindowOpened(Window(1, round(start_s * 100), 3_000, (1,), 40))


@asynccontextmanager
async def opened(
    recogniser: Recording, *messages, is_live: bool = False, **options
) -> AsyncIterator[tuple[RecognisedStream, asyncio.Queue]]:
    """Send messages before it runs, so that they arrive together."""
    drafted: asyncio.Queue[Drafted] = asyncio.Queue()
    options = DecodingOptions.greedy(language="en", live=LiveOptions() if is_live else None, **options)
    with ThreadPoolExecutor(1) as executor:
        stream = RecognisedStream("session", recogniser, options, executor, drafted.put_nowait, lambda: None)
        for message in messages:
            stream.send(message)
        running = asyncio.create_task(stream.run())
        yield stream, drafted
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_audio_that_has_arrived_is_one_call_of_about_a_second():
    recogniser = Recording()
    async with opened(recogniser, *(chunk(i / 10, 0.1) for i in range(15))) as (stream, drafted):
        outputs = [await drafted.get() for _ in range(2)]
        assert (await stream.last_report()).forward_ns == 0, "its time was reported with its text"
    assert all(output.report.forward_ns > 0 for output in outputs)
    assert recogniser.calls == [("open", "en", 0.0, False), (1.0, False, False), (0.5, False, False)]
    assert recogniser.waiting_s == [0.5, 0.0]
    assert [output.hint for output in outputs] == [TimedHint(8_000, "2"), TimedHint(8_000, "3")]


async def test_the_recogniser_knows_of_a_pause_and_of_the_end():
    recogniser = Recording()
    messages = [
        chunk(0, 0.1, VoiceEvent.BEGIN),
        chunk(0.1, 0.1, VoiceEvent.CUT),
        chunk(0.2, 0.1),
        chunk(0.3, 0.0, is_last=True),
    ]
    async with opened(recogniser, *messages, is_live=True) as (_, drafted):
        for _ in range(2):
            await drafted.get()
    assert recogniser.calls == [("open", "en", 0.0, True), (0.1, True, False), (0.2, False, True)]


async def test_audio_before_the_targets_window_is_skipped():
    recogniser = Recording()
    async with opened(recogniser, chunk(0, 1.0)) as (stream, drafted):
        assert (await drafted.get()).hint == TimedHint(8_000, "2")
        stream.send(window_at(5.0))
        for start_s in range(1, 8):
            stream.send(chunk(start_s, 1.0))
        assert (await drafted.get()).hint == TimedHint(5 * SAMPLE_RATE + 8_000, "4")
    assert ("open", "en", 5.0, False) in recogniser.calls
    assert recogniser.num_closed == 2


async def test_live_audio_whose_text_is_final_is_skipped_and_none_before_that():
    recogniser = Recording()
    final = Commit(1, 0, (7,), is_final=True, piece=CompletePiece(1, 0, is_utterance_end=True))
    messages = [*(chunk(start_s, 1.0) for start_s in range(40)), window_at(0), final]
    async with opened(recogniser, *messages, window_at(10.0), is_live=True) as (_, drafted):
        assert (await drafted.get()).hint == TimedHint(30 * SAMPLE_RATE + 8_000, "2")


def stop() -> list[Recognised]:
    return [next(iter(()))]


@pytest.mark.parametrize(
    "result",
    [
        stop,
        sys.exit,
        lambda: None,
        lambda: [(None, "a")],
        lambda: [(0.0, None)],
        lambda: [(nan, "a")],
        lambda: [(1e300, "a")],
        lambda: [(0.0, "\ud800")],
    ],
)
async def test_anything_but_texts_with_times_is_a_failure(result):
    recogniser = Recording()
    recogniser.accept = lambda pcm, **_: result()
    async with opened(recogniser, chunk(0, 1.0)) as (stream, drafted):
        assert (await drafted.get()).report.note == "the recogniser has failed"
        assert stream.has_failed


async def test_what_can_be_read_as_texts_with_times_is_taken():
    """An iterator, a number of numpy, a negative time, and the start of a text that is too long."""
    recogniser = Recording()
    recogniser.accept = lambda pcm, **_: iter([(np.float32(-1.0), "a"), (1, "ä" * 2_001)])
    async with opened(recogniser, chunk(2.0, 1.0)) as (_, drafted):
        hints = [(await drafted.get()).hint for _ in range(2)]
    assert hints == [TimedHint(2 * SAMPLE_RATE, "a"), TimedHint(3 * SAMPLE_RATE, "ä" * 2_000)]


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
        assert (await drafted.get()).report.note == "the recogniser has failed"
        assert stream.has_failed and drafted.empty()


async def test_nothing_is_recognised_of_a_translation_or_an_unknown_language():
    recogniser, asked_s = Recording(), []
    recogniser.open = lambda language, start_s, **_: asked_s.append(start_s)
    for task, asked in (("translate", []), ("transcribe", [0.0])):
        async with opened(recogniser, chunk(0, 1.0, is_last=True), task=task) as (stream, drafted):
            await stream.run()
            stream.send(chunk(1, 1.0))
            await stream.run()
        assert asked_s == asked, "it is asked once"
        assert not recogniser.calls and drafted.empty() and not stream.has_failed
