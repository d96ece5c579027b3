"""A session that loses its target resumes at another, which it looks for in a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from experiments.common.models.speech import SPOKEN
from specwhisper.errors import InvalidRequest, PairMismatch, TargetUnavailable
from specwhisper.live import LiveOptions, LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.types import (
    ALL_BLOCKS,
    SAMPLE_RATE,
    AudioChunk,
    Candidates,
    Commit,
    CompletePiece,
    Limits,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
)
from specwhisper.wire import PROTOCOL_VERSION, codec
from specwhisper.wire.codec.resume_points import resume_point_from_proto
from specwhisper.wire.v1.resume_point_pb2 import ResumePointState
from specwhisper.wire.v1.transcription_pb2 import ResumePoint
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.link.progress import KeptMarks, LiveProgress, ResumeTracker, SessionHints
from specwhisper_draft_server.link.resuming import ResumingTargetStream
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.responses import StreamingResponses
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


def session_on(target: Flapping, clock: Clock, open_once, progress, **how) -> ResumingTargetStream:
    metrics = DraftMetrics(DraftConfig())
    return ResumingTargetStream(
        *("id", open_once, target.target, progress, SessionHints(), TIMEOUT_S, metrics), clock=clock, **how
    )


async def num_taken(target: Flapping, clock: Clock, *, is_live: bool = False) -> int:
    """Return how often a session is opened on a target until it fails."""
    progress = live_progress() if is_live else ResumeTracker(target.limits.max_ahead_tokens)
    async with session_on(target, clock, target.open, progress) as session:
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
        ([], [OPENED, Commit(1, 1, (), held=1)]),
        ([], [OPENED, first(7)]),
        ([LAST], [OPENED, LAST]),
    ],
    ids=["nothing", "an answer to candidates", "known tokens", "the last token once more"],
)
async def test_a_target_that_is_lost_without_progress_ends_the_session(begin, again):
    """Time on a target does not count, which may have nothing to commit, for lack of audio."""
    clock = Clock()
    target = Flapping(clock, [[OPENED, first(7), *begin], again], taking_s=4.0, held_s=100.0)
    assert await num_taken(target, clock) == 1 + 3


async def test_the_time_limit_starts_anew_with_progress():
    clock = Clock()
    words = [[OPENED, Commit(1, n, (n,), log_probs=(-1.0,), held=n + 1)] for n in range(5)]
    target = Flapping(clock, [*words, []], taking_s=4.0)
    assert await num_taken(target, clock) == len(words) + 3


async def test_only_final_text_is_progress_of_live_audio():
    """Each target decodes the piece anew, so other text would let the session try forever."""
    clock = Clock()
    target = Flapping(clock, [[OPENED, first(7)]], taking_s=4.0)
    assert await num_taken(target, clock, is_live=True) == 1 + 3
    piece = CompletePiece(1, 0, is_utterance_end=True)
    final = Commit(1, 0, (9,), log_probs=(-1.0,), held=1, is_final=True, piece=piece)
    target = Flapping(clock, [[OPENED, final]] * 5 + [[OPENED, first(7)]], taking_s=4.0)
    assert await num_taken(target, clock, is_live=True) == 5 + 3


async def test_a_session_that_waits_long_begins_without_a_target_and_gives_up_at_last():
    """It is looked for once events are read, for as long as audio may come."""
    clock = Clock()

    @asynccontextmanager
    async def open_none(*_, **__) -> AsyncIterator[Flapping]:
        raise TargetUnavailable("It is not there.")
        yield

    target = Flapping(clock, [[]])
    async with session_on(target, clock, open_none, live_progress(), waits_long=True) as session:
        assert session.current is None
        await session.send_audio(AudioChunk(0, bytes(64_000)))
        events = asyncio.create_task(anext(session.events(), None))
        while not events.done():
            clock.now_s += 10.0
            await asyncio.sleep(0)
        sentence = "No target has taken the session for 900 s: It is not there"
        with pytest.raises(TargetUnavailable, match=sentence):
            await events
        assert clock.now_s > 900.0


def test_marks_reach_each_target_with_the_audio_that_led_to_them():
    marks = KeptMarks()
    begin, cut, end = map(VoiceMark, (VoiceEvent.BEGIN, VoiceEvent.CUT, VoiceEvent.END), (0, 640, 1_280))
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


NEXT = WindowOpened(Window(2, 2_800, 3_000, prompt=(1, 2), max_new_tokens=50))


def tracker_with_commit() -> ResumeTracker:
    """Return a tracker with two committed tokens and an answered first block."""
    tracker = ResumeTracker(max_ahead_tokens=16)
    tracker.observe(OPENED)
    tracker.observe(Commit(1, 0, (5, 6), answered_block=1, held=2))
    return tracker


def answered(tracker: ResumeTracker, opened: WindowOpened) -> list[tuple[int, int, int]]:
    """Open a window; return window, number and position of blocks answered as lost."""
    answers = [event for event in tracker.observe(opened) if isinstance(event, Commit)]
    assert not any(answer.tokens for answer in answers)
    return [(answer.window_id, answer.answered_block, answer.held) for answer in answers]


def test_candidates_are_lost_until_another_target_has_opened_their_window():
    tracker = tracker_with_commit()
    tracker.migrate()
    assert answered(tracker, OPENED) == [(1, ALL_BLOCKS, 2)]
    assert tracker.pop_pending_block() is None, "the draft continues in the open window"
    commit = Commit(1, 2, (7,), answered_block=2, held=3, is_final=True)
    assert tracker.observe(commit) == [commit]
    assert answered(tracker, NEXT) == [], "later ones are not lost"


def test_a_complete_window_is_resumed_before_its_last_token():
    """No draft proposes tokens for it, so the target that repeats the token is sent an empty block."""
    tracker = tracker_with_commit()
    tracker.observe(Commit(1, 2, (9,), answered_block=1, held=3, is_final=True))
    tracker.migrate()
    assert tracker.pop_pending_block() is None
    assert answered(tracker, OPENED) == []
    assert tracker.pop_pending_block() == Candidates(1, 2, 2, ())
    assert tracker.pop_pending_block() is None
    assert tracker.observe(Commit(1, 2, (9,), is_final=True)) == [], "the token is known"
    assert answered(tracker, NEXT) == [(2, ALL_BLOCKS, 0)], "those of a predicted window are lost"


def test_a_detected_language_outlives_a_target_that_has_only_opened_its_window():
    tracker = tracker_with_commit()
    tracker.observe(Commit(1, 2, (9,), answered_block=1, held=3, is_final=True))
    tracker.observe(replace(NEXT, language_probs={"de": 0.9}))
    tracker.migrate()
    assert tracker.resume_point().language_probs == {"de": 0.9}


def test_a_session_without_a_window_begins_anew():
    tracker = ResumeTracker(max_ahead_tokens=16)
    tracker.migrate()
    assert tracker.resume() is None
    assert answered(tracker, OPENED) == []


def test_silence_has_one_as_often_as_its_session_reports():
    """At each multiple of five seconds: a session reports no other ones."""
    session = SimpleNamespace(target=SimpleNamespace(weights_digest="weights"))
    responses, sent = StreamingResponses(session, None, None), []
    for second in (0, 3, 6, 8, 10, 14, 15):
        session.resume_point = partial(LivePosition, second * SAMPLE_RATE)
        if (point := responses._resume_point(has_finals=False)) is not None:
            sent.append(point.start_sample // SAMPLE_RATE)
    assert sent == [0, 6, 10, 15]
    assert responses._resume_point(has_finals=True) is not None


def test_a_start_that_no_session_has_is_named():
    point = codec.resume_point_to_proto(LivePosition(), "weights")
    point.start_sample = 7
    with pytest.raises(InvalidRequest, match=r"start_sample is 7: .* multiple of 320"):
        codec.resume_point_from_proto(point, "weights", vocabulary_size=8)


@pytest.mark.parametrize(
    ("protocol", "weights", "advice"),
    [
        (PROTOCOL_VERSION + 1, "old", "install the same version on all draft servers."),
        (PROTOCOL_VERSION, "new", "keep a target with those until their sessions have ended."),
    ],
)
def test_a_resume_point_that_does_not_fit_says_what_to_do(protocol, weights, advice):
    state = ResumePointState(protocol_version=protocol, weights_digest=weights).SerializeToString()
    with pytest.raises(PairMismatch) as raised:
        resume_point_from_proto(ResumePoint(state=state), "old", vocabulary_size=8)
    assert str(raised.value).endswith(advice)
