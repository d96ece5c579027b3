"""A session looks for targets for a limited time, which progress restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from experiments.common.models.speech import SPOKEN
from specwhisper.errors import TargetUnavailable
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.types import (
    AudioChunk,
    Commit,
    CompletePiece,
    Limits,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
)
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.link.progress import KeptMarks, LiveProgress, ResumeTracker, SessionHints
from specwhisper_draft_server.link.resuming import ResumingTargetStream
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.transcriber import Message, TargetDescription
from tests.clock import Clock

pytestmark = pytest.mark.usefixtures("short_delays")

TIMEOUT_S = 10.0
OPENED = WindowOpened(Window(1, 0, 3_000, prompt=(1, 2), max_new_tokens=50))
LAST = Commit(1, 1, (9,), log_probs=(-1.0,), held=2, is_final=True)
Events = Sequence[WindowOpened | Commit]


class Flapping:
    """A target that takes a session, sends some events, and is lost.

    Parameters
    ----------
    events : what one session after another receives; the last ones are repeated.
    taking_s, held_s : how long it takes to open a session, and how long it runs then.
    """

    address = "that comes and goes"
    limits = Limits()
    target = TargetDescription("flapping", "digest", SPOKEN, 80, limits)
    min_round_trip_ns = 0
    piece_bytes = 16_384

    def __init__(self, clock: Clock, events: Sequence[Events], *, taking_s: float = 0.0, held_s: float = 0.0):
        self._clock, self._events, self._taking_s, self._held_s = clock, list(events), taking_s, held_s
        self.num_taken = 0
        self.going_away = asyncio.Event()

    @asynccontextmanager
    async def open(self, *_, **__) -> AsyncIterator[Flapping]:
        self.num_taken += 1
        self._clock.now_s += self._taking_s
        yield self

    def leave(self) -> None:
        pass

    def send(self, message: Message) -> None:
        pass

    async def send_audio(self, chunk: AudioChunk) -> None:
        pass

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        for each in self._events.pop(0) if len(self._events) > 1 else self._events[0]:
            yield each
        self._clock.now_s += self._held_s
        raise TargetUnavailable("It is gone.")


def live_progress() -> LiveProgress:
    return LiveProgress(LiveWindows(SPOKEN, DecodingOptions.greedy(live=LiveOptions()), follows=True))


async def num_taken(target: Flapping, clock: Clock, *, is_live: bool = False) -> int:
    """Return how often a session is opened on a target until it fails."""
    metrics, progress = DraftMetrics(DraftConfig()), ResumeTracker(target.limits.max_ahead_tokens)
    if is_live:
        progress = live_progress()
    session = ResumingTargetStream(
        "id", target.open, target.target, progress, SessionHints(), TIMEOUT_S, metrics, clock=clock
    )
    async with session:
        with pytest.raises(TargetUnavailable, match="It is gone"):
            async with asyncio.timeout(60):
                async for _ in session.events():
                    pass
    return target.num_taken


def first(*tokens: int) -> Commit:
    return Commit(1, 0, tokens, log_probs=(-1.0,) * len(tokens), held=len(tokens))


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        ([], []),
        ([], [OPENED]),
        ([], [OPENED, Commit(1, 1, (), held=1)]),
        ([], [OPENED, first(7)]),
        ([LAST], [OPENED, LAST]),
    ],
    ids=["nothing", "the window", "an answer to candidates", "known tokens", "the last token once more"],
)
async def test_a_target_that_is_lost_without_progress_ends_the_session(begin, again):
    clock = Clock()
    target = Flapping(clock, [[OPENED, first(7), *begin], again], taking_s=4.0)
    assert await num_taken(target, clock) == 1 + 3


async def test_the_time_limit_starts_anew_with_progress():
    clock = Clock()
    words = [[OPENED, Commit(1, n, (n,), log_probs=(-1.0,), held=n + 1)] for n in range(5)]
    target = Flapping(clock, [*words, []], taking_s=4.0)
    assert await num_taken(target, clock) == len(words) + 3


async def test_time_on_a_target_does_not_count():
    """A target may have nothing to commit, for lack of audio."""
    clock = Clock()
    target = Flapping(clock, [[OPENED, first(7)], [OPENED]], taking_s=4.0, held_s=100.0)
    assert await num_taken(target, clock) == 1 + 3


async def test_only_final_text_is_progress_of_live_audio():
    """Each target decodes the piece anew, so other text would let the session try forever."""
    clock = Clock()
    target = Flapping(clock, [[OPENED, first(7)]], taking_s=4.0)
    assert await num_taken(target, clock, is_live=True) == 1 + 3
    final = Commit(
        1, 0, (9,), log_probs=(-1.0,), held=1, is_final=True, piece=CompletePiece(1, 0, is_utterance_end=True)
    )
    target = Flapping(clock, [[OPENED, final]] * 5 + [[OPENED, first(7)]], taking_s=4.0)
    assert await num_taken(target, clock, is_live=True) == 5 + 3


async def test_a_session_that_waits_long_begins_without_a_target():
    """It is looked for once events are read, for as long as audio may come."""
    clock = Clock()
    target = Flapping(clock, [[]])
    is_there, changes = asyncio.Event(), []

    @asynccontextmanager
    async def open_late(*_, **__) -> AsyncIterator[Flapping]:
        if not is_there.is_set():
            raise TargetUnavailable("It is not there.")
        async with target.open() as stream:
            yield stream

    session = ResumingTargetStream(
        "id",
        open_late,
        target.target,
        live_progress(),
        SessionHints(),
        TIMEOUT_S,
        DraftMetrics(DraftConfig()),
        waits_long=True,
        on_change=lambda: changes.append(session.current is not None),
        clock=clock,
    )
    async with session:
        assert session.current is None
        await session.send_audio(AudioChunk(0, bytes(64_000)))
        events = asyncio.create_task(anext(session.events(), None))
        clock.now_s += 800.0
        is_there.set()
        while True not in changes:
            await asyncio.sleep(0)
        is_there.clear()
        while not events.done():
            clock.now_s += 10.0
            await asyncio.sleep(0)
        with pytest.raises(
            TargetUnavailable, match="No target has taken the session for 900 s: It is not there"
        ):
            await events


async def test_marks_reach_each_target_with_the_audio_that_led_to_them():
    marks = KeptMarks()
    begin, cut, end = (
        VoiceMark(event, sample)
        for event, sample in zip(
            (VoiceEvent.BEGIN, VoiceEvent.CUT, VoiceEvent.END), (0, 640, 1_280), strict=True
        )
    )
    marks.put(320, [begin])
    marks.put(960, [cut])
    marks.put(1_600, [end])
    assert marks.take(319) == ()
    assert marks.take(1_000) == (begin, cut)
    assert marks.take(1_000) == ()
    marks.restart()
    assert marks.take(5_000) == (begin, cut, end)
    marks.forget_before(639)
    marks.restart()
    assert marks.take(5_000) == (begin, cut, end)
    marks.forget_before(640)
    assert marks.take(5_000) == ()
    marks.restart()
    assert marks.take(5_000) == (end,), "the utterance continues there"
    marks.forget_before(5_000)
    marks.put(6_000, [begin])
    assert marks.take(6_000) == (begin,)
