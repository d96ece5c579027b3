"""A live session outlives its target: what it keeps, merges and waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from specwhisper_draft_server.sessions.draft_only import UnverifiedText
from specwhisper_draft_server.sessions.live_session import LiveSession
from specwhisper_draft_server.sessions.merged_transcript import MergedTranscript

from experiments.common.models.scripted import END
from experiments.common.models.speech import (
    SPOKEN,
    SPOKEN_MULTILINGUAL,
    speech,
)
from specwhisper.errors import PairMismatch, ServerFull, TargetUnavailable
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live.transcript import LiveTranscript
from specwhisper.transcription.live.windows import LiveWindows
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Candidates,
    Commit,
    Limits,
    Mode,
    Segment,
    TimedHint,
    Window,
    WindowOpened,
    Word,
)
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.sessions.session import Session, SessionRequest
from specwhisper_draft_server.sessions.update import SessionUpdate
from tests.live import BEGIN, ENDED, mark
from tests.rpc.services import (
    PROMPTLY_S,
)
from tests.rpc.speaking import texts_of

LIVE = DecodingOptions.greedy(live=LiveOptions())
LOST = TargetUnavailable("It is gone.")
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


async def test_draft_only_text_is_proposed_before_the_drafts_own_candidates():
    target = Unsteady(digest="digest")
    target.may_commit.set()
    text = UnverifiedText()
    text.observe(WindowOpened(Window(5, 0, 100, (SPOKEN.start_of_transcript,), 40)))
    text.observe(Commit(5, 0, (1, 2), is_final=False))
    text.observe(Commit(5, 2, (END,), is_final=True))
    request, *others, _ = request_to(target)
    request = replace(request, length=DraftLength.of(Mode.FULL, None))
    session = Session(request, *others, None, unverified=text)
    with pytest.raises(TargetUnavailable):
        async for _ in session.run(second()):
            pass
    assert [(block.window_id, block.base, block.tokens) for block in target.proposed] == [(0, 0, (1, 2, END))]
    assert session.builder.statistics.num_drafted == 3


class Unsteady:
    """A target that opens no session, or is lost right after a final commit."""

    address = "unsteady:1"
    limits = Limits()
    min_round_trip_ns = 0

    def __init__(
        self, *refusals: Exception, digest: str = "digest", is_utterance_end: bool = True, afterwards=()
    ) -> None:
        self._refusals = list(refusals)
        self._afterwards = list(afterwards)  # errors of later sessions
        self.target = TargetDescription("unsteady", digest, SPOKEN, 80, self.limits)
        self.proposed: list[Candidates] = []
        self._marks = (mark(BEGIN, 0.0), mark(ENDED, 1.0))[: 1 + is_utterance_end]
        self._has_audio = asyncio.Event()
        self.may_commit, self.is_lost, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def open(self, *_, **__) -> AsyncIterator[Unsteady]:
        if self._refusals:
            raise self._refusals.pop(0) if len(self._refusals) > 1 else self._refusals[0]
        self._refusals, self._afterwards = self._afterwards, []
        yield self

    def hint(self, hint: TimedHint) -> None:
        pass

    def propose(self, block: Candidates) -> None:
        self.proposed.append(block)

    async def send_audio(self, chunk: AudioChunk) -> None:
        self._has_audio.set()

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        await self._has_audio.wait()
        windows = LiveWindows(SPOKEN, LIVE)
        windows.append_audio(AudioChunk(0, b"", marks=self._marks), SAMPLE_RATE)
        window = windows.open(100)
        yield WindowOpened(window)
        await self.may_commit.wait()
        tokens = (1, 2, END)
        yield Commit(window.id, 0, tokens, is_final=True, step=windows.close(window, tokens).step)
        self.is_lost.set()
        raise LOST


def request_to(target: Unsteady) -> tuple[SessionRequest, Unsteady, TargetDescription, None]:
    """Return the arguments of a session on a target, without a draft."""
    request = SessionRequest(LIVE, DraftLength.of(Mode.TARGET_ONLY, None))
    return request, target, target.target, None


def failover_on(target: Unsteady, timeout_s: float = 10.0) -> LiveSession:
    """Return a session that begins on a target and outlives it."""
    metrics = DraftMetrics(DraftConfig())
    return LiveSession(*request_to(target), metrics, resume_timeout_s=timeout_s, continue_unverified=True)


async def second() -> AsyncIterator[bytes]:
    """Yield a second of speech."""
    yield speech(1.0)


@pytest.mark.parametrize(("is_utterance_end", "expected"), [(True, {1: [1, 2]}), (False, {})])
async def test_text_that_became_final_as_the_target_was_lost_is_reported(is_utterance_end, expected):
    """The session continues after it, so it would not be reported later."""
    final, steps = [], []
    mismatch = PairMismatch("It has other weights.")
    target = Unsteady(is_utterance_end=is_utterance_end, afterwards=[mismatch])
    session = failover_on(target, timeout_s=0.05)
    with pytest.raises(PairMismatch):
        updates = session.run(second())
        await anext(updates)  # the session is open
        async for update in updates:
            final += update.segments
            steps += update.steps
            target.may_commit.set()
            await target.is_lost.wait()  # a client that reads slowly
    assert texts_of(final) == expected
    assert [(step.start_sample, step.end_sample) for step in steps] == [(0, SAMPLE_RATE)]


def test_the_language_is_known_before_the_next_part_has_a_window():
    windows = LiveWindows(SPOKEN_MULTILINGUAL, replace(LIVE, language="de"))
    windows.append_audio(AudioChunk(0, b"", marks=(mark(BEGIN, 0.0),)), SAMPLE_RATE)
    part = LiveTranscript(SPOKEN_MULTILINGUAL)
    transcript = MergedTranscript(part)
    part.observe(WindowOpened(windows.open(100)))
    transcript.follow_target(LiveTranscript(SPOKEN_MULTILINGUAL))
    assert transcript.language == "de"


def test_segments_of_two_targets_do_not_overlap():
    """Times are estimates, which differ between targets."""
    first = Segment(1.0, 3.0, (1,), " one", words=(Word(1.0, 3.0, " one"),))
    second = Segment(2.5, 4.0, (2,), " two", words=(Word(2.5, 2.8, " two"), Word(3.5, 4.0, " three")))
    merged = MergedTranscript(LiveTranscript(SPOKEN)).take(SessionUpdate([first, second])).segments
    assert [(s.start_s, s.end_s) for s in merged] == [(1.0, 3.0), (3.0, 4.0)]
    assert [(w.start_s, w.end_s) for s in merged for w in s.words] == [(1.0, 3.0), (3.0, 3.0), (3.5, 4.0)]


class Lingering(Unsteady):
    """Is lost some time after all text has become final."""

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        try:
            async for event in super().events():
                yield event
        except TargetUnavailable:
            await self.may_end.wait()
            raise


async def test_a_session_ends_although_its_steps_were_not_read():
    target = Lingering()
    target.may_commit.set()
    session = Session(*request_to(target))
    with pytest.raises(TargetUnavailable):
        async with asyncio.timeout(PROMPTLY_S):
            async for update in session.run(second()):
                if update.steps:
                    target.may_end.set()


@pytest.mark.parametrize("refusals", [[LOST], [LOST, ServerFull("No slot is free.")]])
async def test_the_wait_for_a_target_that_takes_no_session_is_limited(refusals):
    with pytest.raises(TargetUnavailable, match=r"none has taken the session in 0\.05 s"):
        async with asyncio.timeout(PROMPTLY_S):
            async for update in failover_on(Unsteady(*refusals, digest="digest"), 0.05).run(second()):
                assert not update


async def test_a_target_that_is_full_from_the_beginning_is_reported():
    with pytest.raises(ServerFull, match="No slot is free"):
        async for update in failover_on(Unsteady(ServerFull("No slot is free."), digest="digest")).run(
            second()
        ):
            assert not update
