"""Audio that comes faster than a target decodes waits in its draft server; no target refuses it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from functools import partial
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from specwhisper_draft_server.sessions.audio_feed import AudioFeed

from experiments.common.models.scripted import VOCABULARY, ScriptedModel
from experiments.common.models.speech import SPOKEN, SpeechModel, speech
from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.engine.verifier import Verifier
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live.transcript import LiveTranscript
from specwhisper.transcription.live.windows import follow_windows
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import (
    SAMPLE_RATE,
    WINDOW_SAMPLES,
    AudioChunk,
    Failed,
    Finished,
    Limits,
    Mode,
    VoiceMark,
)
from specwhisper_draft_server.debounce import Debouncer
from tests.live import BEGIN, ENDED, mark
from tests.nightly import examples

LIMITS = Limits(max_ahead_samples=3 * WINDOW_SAMPLES)  # the least
PIECE_SAMPLES = 1_600


class Marks:
    """Voice activity that is given: marks, each with the time at which it is known."""

    def __init__(self, marks: Sequence[tuple[float, VoiceMark]]) -> None:
        self._marks = deque(marks)
        self._num_samples = 0

    async def detect(self, pcm: bytes) -> tuple[VoiceMark, ...]:
        self._num_samples += len(pcm) // 2
        known = []
        while self._marks and self._marks[0][0] * SAMPLE_RATE <= self._num_samples:
            known.append(self._marks.popleft()[1])
        return tuple(known)

    def end_utterance(self) -> tuple[VoiceMark, ...]:
        return ()


class Later(InlineExecutor):
    """Runs what is submitted when the test calls for it."""

    def __init__(self) -> None:
        self._waiting: deque = deque()

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        self._waiting.append((future, partial(fn, *args, **kwargs)))
        return future

    def run(self) -> None:
        while self._waiting:
            future, call = self._waiting.popleft()
            future.set_result(call())


class Target:
    """A target in this process, which takes a step when the test calls for it."""

    limits = LIMITS

    def __init__(self, model: ScriptedModel, options: DecodingOptions) -> None:
        self._aligner = Later()
        self._verifier = Verifier(model, executor=InlineExecutor(), aligner=self._aligner, limits=LIMITS)
        self._verifier.open("one", Mode.TARGET_ONLY, options)
        self.num_samples = 0

    async def send_audio(self, chunk: AudioChunk) -> None:
        self._verifier.submit("one", chunk)
        self.num_samples = chunk.start_sample + len(chunk.pcm) // 2

    def step(self) -> list:
        self._aligner.run()
        events = [event for _, event in self._verifier.step()]
        for event in events:
            if isinstance(event, Failed):
                raise event.error
        return events


async def transcribe(
    pcm: bytes, marks: list[tuple[float, VoiceMark]] | None, seed: int, **how: object
) -> Target:
    """Transcribe audio that is there at once; events reach the feed after a while."""
    random = Random(seed)
    voice, builder = None, TranscriptBuilder(VOCABULARY)
    options, model = DecodingOptions.greedy(language="en", **how), ScriptedModel()
    if marks is not None:
        live = LiveOptions(step_ms=2_000)
        voice, builder = Marks(marks), LiveTranscript(SPOKEN, live.position)
        options, model = DecodingOptions.greedy(language="en", live=live), SpeechModel()
    target, windows = Target(model, options), follow_windows(model.vocabulary, options)
    feed = AudioFeed(builder, voice, windows, Debouncer(), lambda chunk: None)

    async def audio() -> AsyncIterator[bytes]:
        for at in range(0, len(pcm), 2 * PIECE_SAMPLES):
            yield pcm[at : at + 2 * PIECE_SAMPLES]

    sending = asyncio.create_task(feed.send(target, audio()))
    is_finished, events = False, deque()
    while not is_finished:
        for _ in range(random.choice((0, 1, 30, 2_000))):  # the feed gets its turns
            await asyncio.sleep(0)
        events += target.step()
        for _ in range(random.randint(0, len(events))):
            match event := events.popleft():
                case Finished():
                    is_finished = True
                case _:
                    feed.observe(event)
                    builder.observe(event)
    await sending
    return target


@settings(max_examples=examples(4, 100), deadline=None)
@given(
    lengths_s=st.lists(st.tuples(st.floats(0.3, 20.0), st.floats(0.6, 20.0)), min_size=1, max_size=3),
    seed=st.integers(0, 1_000),
)
@example(lengths_s=[(1.0, 1.0), (0.5, 1.0)], seed=0)
@pytest.mark.parametrize(
    "how", [None, {}, {"word_timestamps": True, "hallucination_silence_threshold": 0.5}], ids=str
)
async def test_no_audio_is_refused_however_fast_it_comes(how, lengths_s, seed):
    """Without options it is live. Where words decide what was invented, a window may begin further back."""
    audio, marks, at_s = b"", [], 0.0
    lengths_s = [*lengths_s, (1.0, 1.0), (95.0, 1.0)]
    for number, (speech_s, silence_s) in enumerate(lengths_s):
        audio += speech(speech_s, number) + bytes(2 * round(silence_s * SAMPLE_RATE))
        end_s = at_s + speech_s
        marks += [(at_s + 0.2, mark(BEGIN, at_s)), (end_s + 0.5, mark(ENDED, end_s))]
        at_s = end_s + silence_s
    target = await transcribe(audio, marks if how is None else None, seed, **(how or {}))
    assert target.num_samples == len(audio) // 2
