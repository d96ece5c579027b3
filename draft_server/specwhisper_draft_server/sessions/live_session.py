"""A live session on one target after another.

Between them it is draft-only, or waits.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from specwhisper.audio.kept import KeptAudio
from specwhisper.errors import PairMismatch, SpecWhisperError, TargetUnavailable
from specwhisper.live import LiveOptions
from specwhisper.observe.tracing import note_event
from specwhisper.rpc.failover import Failover
from specwhisper.rpc.next_item import NextItem
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.transcriber import TargetDescription, Transcriber
from specwhisper.types import SAMPLE_RATE, EndUtterance, Mode, VoiceMark
from specwhisper_draft_server.drafts.source import DraftSource
from specwhisper_draft_server.link.migration import opened_elsewhere
from specwhisper_draft_server.link.pace import Pace
from specwhisper_draft_server.link.resuming import LOST, REFUSED
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.sessions.draft_only import DraftOnlyTarget, UnverifiedText
from specwhisper_draft_server.sessions.merged_transcript import MergedTranscript
from specwhisper_draft_server.sessions.session import Session, SessionRequest, TargetOpener
from specwhisper_draft_server.sessions.update import SessionUpdate

logger = logging.getLogger(__name__)

HANDOVER_S = 2.0  # for the next target to take a session, which is paused in the meantime
MAX_OUTAGE_S = 900.0  # the session ends after this time, or when this much audio is kept


@dataclass(slots=True)
class Outage:
    """The time from the loss of a target to the first event of the next one.

    Attributes
    ----------
    error : why no target runs the session; the latest one.
    on_recovered : called when it is over.
    """

    error: SpecWhisperError
    on_recovered: Callable[[], None] = lambda: None
    started_s: float = field(default_factory=monotonic)


class SpeechEvents:
    """A filter of the speech events of audio that is processed again.

    Each event is reported once.
    """

    def __init__(self) -> None:
        self._last: VoiceMark | None = None

    def new(self, events: Sequence[VoiceMark]) -> list[VoiceMark]:
        """Return the events after the last one that was returned, begin and end in turn."""
        new = []
        for mark in events:
            # Where a window was cut, its utterance seems to begin once more.
            last = self._last
            if last is None or (mark.sample > last.sample and mark.event is not last.event):
                self._last = mark
                new.append(mark)
        return new


class LiveSession:
    """A live transcription on one target after another; each runs one part of it.

    It is run as :class:`Session` is. Each part continues after the last final word. All targets have the
    weights of the first one, which wrote the final text.

    ==================  ==========================================  =======================================
    State               Fields                                      Ended by
    ==================  ==========================================  =======================================
    on a target         ``_current`` runs, ``_outage`` is unset     the end of the audio; the target's loss
    migration           the same, and ``_next`` is being opened     another target, which has opened it
    outage, draft-only  ``_outage`` is set, ``_current`` drafts     a target, which has opened ``_next``
    outage, waiting     ``_outage`` is set, no part runs            the same; the time limit (below)
    after an outage     ``_outage`` is set, ``_current`` runs       the target's first update
    ==================  ==========================================  =======================================

    Parameters
    ----------
    target : the target's last known description.
    resume_timeout_s : how long the session looks for a target. With ``continue_unverified`` that is
        ``MAX_OUTAGE_S`` as long as more audio may come.
    continue_unverified : whether the draft continues while there is no target, with unverified text.
    lost : why there is no target now; then the session begins with an outage.
    same_weights : whether the first target must have the weights of ``target``, too.

    Attributes
    ----------
    target : once a target has taken the session, that one.
    builder : the transcript so far.
    """

    def __init__(
        self,
        request: SessionRequest,
        transcriber: Transcriber,
        target: TargetDescription,
        drafting: DraftSource | None,
        metrics: DraftMetrics,
        *,
        resume_timeout_s: float,
        continue_unverified: bool = False,
        lost: SpecWhisperError | None = None,
        same_weights: bool = False,
    ) -> None:
        self.id = secrets.token_hex(8)
        self._num_parts = 0
        self._request = request
        self._live = request.options.live or LiveOptions()
        self._transcriber = transcriber
        self.target = target
        self._drafting = drafting
        self._metrics = metrics
        self._resume_timeout_s = resume_timeout_s
        self._failover = Failover(resume_timeout_s)
        self._pace = Pace()
        self._continue_unverified = continue_unverified
        # In an outage, the client may know the last target's weights as those that write the text.
        self._same_weights = same_weights or lost is not None
        self._outage = Outage(lost) if lost is not None else None
        self._audio = KeptAudio(self._live.position.start_sample)
        self._current: Session | None = None  # the part that runs, or ran last
        self._next: Session | None = None  # open on a target, and not run yet
        self._last_address = ""  # of the current target, or the last one
        self._unverified: UnverifiedText | None = None  # of the last outage
        self._speech = SpeechEvents()
        self.builder = MergedTranscript(LiveTranscript(target.vocabulary, self._live.position))

    @property
    def has_lost_draft(self) -> bool:
        """Whether the draft of the current part has failed; see :class:`Session`."""
        return self._current is not None and self._current.has_lost_draft

    async def run(self, audio: AsyncIterator[bytes | EndUtterance]) -> AsyncGenerator[SessionUpdate]:
        """Transcribe canonical PCM; yield an update after each change."""
        reading = asyncio.create_task(self._read(audio))
        self._metrics.kept_audio.add(self._audio)
        try:
            if self._outage is None:
                await self._open_first()
            while True:
                if self._outage is not None and self._next is None:
                    async with aclosing(self._run_outage(self._outage, reading)) as updates:
                        async for update in updates:
                            yield update
                try:
                    async with aclosing(self._run_on_target(reading)) as updates:
                        async for update in updates:
                            yield update
                    return
                except (*LOST, *REFUSED) as error:
                    self._note_lost(error)
        finally:
            self._metrics.kept_audio.discard(self._audio)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            if self._next is not None:
                await self._next.close()

    async def _read(self, audio: AsyncIterator[bytes | EndUtterance]) -> None:
        """Keep the client's audio, for each target that needs it."""
        try:
            async for piece in audio:
                if isinstance(piece, EndUtterance):
                    self._audio.end_utterance()
                else:
                    await self._audio.put(piece)
        finally:
            self._audio.finish()

    async def _open_first(self) -> None:
        """Open the first part; a refusal ends the session, a loss begins an outage."""
        try:
            self._next = await self._open(self._transcriber)
        except LOST as error:
            self._note_lost(error)

    def _note_lost(self, error: SpecWhisperError) -> None:
        if self._outage is None:
            self._outage = Outage(error, self._metrics.lost(error))
        self._outage.error = error
        note_event("target lost", error=type(error).__name__)
        logger.warning("target lost", extra={"session": self.id, "error": str(error)})

    def _note_progress(self) -> None:
        if self._outage is not None:
            self._outage.on_recovered()
            self._outage = None
            self._failover.progressed()

    async def _run_on_target(self, reading: asyncio.Task[None]) -> AsyncGenerator[SessionUpdate]:
        """Run the open part until the target is lost or another one has taken over."""
        session, self._next = self._next, None
        if session is None:
            raise RuntimeError("A part runs once it is open on a target.")
        self._current = session
        if session.remote is not None:
            self._last_address = session.remote.address
            self._pace.begin(monotonic())
            session.remote.on_answer = self._pace.observe
        part = _live_transcript(session)
        self.builder.follow_target(part)
        migrating = asyncio.create_task(self._migrate(session))
        updates = session.run(self._audio.pieces(part.position.start_sample))
        is_open = False
        try:
            async with aclosing(updates):
                async for update in updates:
                    if reading.done():
                        await reading
                    if not session.holds_events:  # else the next part needs the audio from here on
                        self._audio.forget_before(self.builder.position.start_sample)
                    if is_open:  # opening it is no progress yet
                        self._note_progress()
                    is_open = True
                    yield self._take(update)
        finally:
            migrating.cancel()
            await asyncio.gather(migrating, return_exceptions=True)
            await session.close()
        if reading.done():
            await reading  # an error of the client's last message ends the session, too

    def _take(self, update: SessionUpdate) -> SessionUpdate:
        """Return what an update of a part means for the whole session."""
        return replace(self.builder.take(update), speech_events=self._speech.new(update.speech_events))

    # Opening a part

    def _session(
        self, opener: TargetOpener, request: SessionRequest, unverified: UnverifiedText | None = None
    ) -> Session:
        self._num_parts += 1
        return Session(
            request,
            opener,
            self.target,
            self._drafting,
            unverified=unverified,
            same_weights=self._same_weights,
            avoid=self._last_address,
            session_id=f"{self.id}-{self._num_parts}",
        )

    async def _open(self, transcriber: Transcriber) -> Session:
        """Open a part on a target, after the last final word."""
        live = replace(self._live, position=self.builder.position)
        request = replace(self._request, options=replace(self._request.options, live=live))
        session = self._session(transcriber, request, self._unverified)
        await session.open()
        self.target, self._same_weights = session.target, True
        return session

    async def _migrate(self, session: Session) -> None:
        """Move the session once its target announces that it stops, or once another one is much faster."""
        if session.remote is None:
            return
        self._next = await opened_elsewhere(
            partial(self._open_after, session), session.remote, self._pace, session_id=self.id
        )
        session.leave()

    async def _open_after(self, session: Session, within_s: float | None = None) -> Session:
        """Open the next part after the text of one whose events wait for it."""
        # While they do not wait yet: the question may take long to answer.
        room = await self._transcriber.find_room(
            self.target, same_weights=True, avoid=self._last_address, within_s=within_s
        )
        session.hold_events()
        try:
            async with asyncio.timeout(HANDOVER_S):
                return await self._open(room)
        except BaseException as error:
            session.release_events()
            if isinstance(error, TimeoutError):
                raise TargetUnavailable(f"No target has taken the session within {HANDOVER_S:g} s.") from None
            raise

    # Outages

    async def _run_outage(self, outage: Outage, reading: asyncio.Task[None]) -> AsyncGenerator[SessionUpdate]:
        """Open the next part on any target; yield draft-only updates meanwhile.

        It only waits if the client or the draft cannot go without a target.
        """
        drafting = self._drafting if self._request.length.mode.drafts else None
        if not self._continue_unverified or drafting is None or not drafting.can_run_draft_only:
            await self._reopen(outage)
            return
        self._metrics.draft_only.inc()
        draft_only = DraftOnlyTarget()
        request = self._draft_only_request()
        session = self._session(draft_only, request)
        self._unverified, self._current = draft_only.text, session
        part = _live_transcript(session)
        self.builder.follow_draft(part)
        updates = session.run(self._audio.pieces(part.position.start_sample))
        reopening = asyncio.create_task(self._reopen(outage))
        try:
            async with aclosing(_until(reopening, updates)) as changes:
                async for update in changes:
                    yield self._take(update)
            if reading.done():
                await reading  # an error of the client ends the session, whether there is a target or not
            await reopening
        finally:
            reopening.cancel()
            await asyncio.gather(reopening, return_exceptions=True)

    def _draft_only_request(self) -> SessionRequest:
        """Return the request for a draft without a target: it neither waits nor pauses."""
        vocabulary = self.target.vocabulary
        language = (
            self._request.options.language or self.builder.detected_language or vocabulary.default_language
        )
        options = replace(
            self._request.options,
            language=(language or "en") if vocabulary.languages else None,
            live=replace(self._live, position=self.builder.position, reuses_candidates=False),
            hotwords="",
            hint="",
            initial_prompt="",
            carry_initial_prompt=False,
            word_timestamps=False,
        )
        length = DraftLength(Mode.FULL, self._request.length.gamma, min_confidence=0.0)
        return replace(self._request, options=options, length=length)

    async def _reopen(self, outage: Outage) -> None:
        """Open the next part; retry until a target takes it, preferably another one."""
        while True:
            await self._wait_to_retry(outage)
            try:
                self._next = await self._open(self._transcriber)
                return
            except (*LOST, *REFUSED) as error:
                outage.error = error

    async def _wait_to_retry(self, outage: Outage) -> None:
        """Wait for the next attempt; raise the session's last error if it is too late."""
        is_draft_enough = self._continue_unverified and not self._audio.is_complete
        try:
            await self._failover.wait(outage.error, is_limited=not is_draft_enough)
        except SpecWhisperError as error:
            kind = PairMismatch if isinstance(error, PairMismatch) else TargetUnavailable
            raise kind(
                f"Target {self._transcriber.address} was lost, and none has taken the session in "
                f"{self._resume_timeout_s:g} s; the last error was: {error}"
            ) from None
        kept_s = self._audio.num_samples / SAMPLE_RATE
        if max(monotonic() - outage.started_s, kept_s) > MAX_OUTAGE_S:
            raise TargetUnavailable(
                f"Target {self._transcriber.address} was lost for longer than {MAX_OUTAGE_S:g} s."
            )


def _live_transcript(session: Session) -> LiveTranscript:
    if not isinstance(session.builder, LiveTranscript):
        raise RuntimeError("Only live audio continues on another target in parts.")
    return session.builder


async def _until(
    task: asyncio.Task[None], updates: AsyncGenerator[SessionUpdate]
) -> AsyncGenerator[SessionUpdate]:
    """Yield updates until a task is done, or the updates end."""
    async with aclosing(updates):
        while not task.done():
            async with NextItem(updates) as pending:
                if not await pending.wait(task) or (update := pending.item) is None:
                    return
            yield update
