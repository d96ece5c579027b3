"""Live audio on one target after the other; while there is none, it is kept, or the draft goes on alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic

from specwhisper.audio.kept import KeptAudio
from specwhisper.errors import PairMismatch, SpecWhisperError, TargetUnavailable
from specwhisper.live import LiveOptions
from specwhisper.observe.tracing import note_event
from specwhisper.rpc.backoff import Backoff
from specwhisper.rpc.following import Following
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.transcriber import TargetDescription, Transcriber
from specwhisper.types import SAMPLE_RATE, Mode, Segment, VoiceEvent, VoiceMark
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafting import Drafting
from specwhisper_draft_server.link.migration import opened_elsewhere
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.sessions.draft_only import Alone
from specwhisper_draft_server.sessions.merged_transcript import MergedTranscript
from specwhisper_draft_server.sessions.resuming import LOST, REFUSED
from specwhisper_draft_server.sessions.session import Session, SessionRequest
from specwhisper_draft_server.sessions.unverified_text import Foretold

logger = logging.getLogger(__name__)

HANDOVER_S = 2.0  # for another target, once it is found, to take a session, whose text stands still meanwhile
MAX_OUTAGE_S = 900.0  # behind which the session ends, as it does where more audio than that is kept


class LiveSession:
    """Runs a live transcription as :class:`Session` does, on one target after the other.

    It begins each from the last verified word. All have the weights of the first, which wrote what is final.

    Parameters
    ----------
    target : as it described itself, now or when it was there last.
    patience_s : how long the session waits for a target; that in which a draft goes on alone does not count.
    goes_on_alone : whether the draft does while there is no target; what it writes is verified afterwards.
    lost : why there is none now; then the draft begins alone.
    same_weights : whether the first target has those of ``target``, too.

    Attributes
    ----------
    target : once one has taken the session, what it is.
    builder : the transcript so far.
    speech_events : as :class:`Session` has them.
    """

    def __init__(
        self,
        request: SessionRequest,
        transcriber: Transcriber,
        target: TargetDescription,
        drafting: Drafting | None,
        *,
        patience_s: float,
        goes_on_alone: bool = False,
        lost: SpecWhisperError | None = None,
        same_weights: bool = False,
        metrics: DraftMetrics | None = None,
    ) -> None:
        self._metrics = metrics or DraftMetrics(DraftConfig())
        self._note_going_on: Callable[[], None] | None = None
        self._request = request
        self._live = request.options.live or LiveOptions()
        self._transcriber = transcriber
        self.target = target
        # The client may have been told, in an outage, that those of the last target write the text.
        self._same_weights = same_weights or lost is not None
        self._patience_s = patience_s
        self._goes_on_alone = goes_on_alone
        self._lost = lost
        self._drafting = drafting
        self._audio = KeptAudio(self._live.position.start_sample)
        self._has_begun = lost is not None
        self._backoff = Backoff(inf)
        self._lost_since_s: float | None = None
        self._waits_since_s: float | None = None  # for a target that takes the session
        self._foretold: Foretold | None = None  # by the draft, while it was alone
        self._session_id = ""  # of the last one
        self._running: Session | None = None  # the last one
        self._last_address = ""  # of its target
        self._next: Session | None = None  # open at another target than the one that stops
        self._told_to = -1  # sample, of speech events
        self._told: VoiceEvent | None = None  # the last one
        self.builder = MergedTranscript(LiveTranscript(target.vocabulary, self._live.position))
        self.speech_events: list[VoiceMark] = []

    @property
    def has_lost_draft(self) -> bool:
        """As :class:`Session` has it."""
        return self._running is not None and self._running.has_lost_draft

    async def run(self, audio: AsyncIterator[bytes]) -> AsyncGenerator[list[Segment]]:
        """Transcribe canonical PCM; give the segments that became final whenever anything has changed."""
        reading = asyncio.create_task(self._read(audio))
        self._metrics.held.add(self._audio)
        try:
            while True:
                if self._lost is not None and self._next is None:
                    async with aclosing(self._wait(self._lost, reading)) as updates:
                        async for segments in updates:
                            yield segments
                try:
                    async with aclosing(self._run_on_target(reading)) as updates:
                        opened = await anext(updates)
                        self._has_begun = True
                        yield opened
                        async for segments in updates:
                            self._lost_since_s = self._waits_since_s = None
                            self._backoff = Backoff(inf)
                            if self._note_going_on is not None:
                                self._note_going_on()
                                self._note_going_on = None
                            yield segments
                    return
                except (*LOST, *REFUSED) as error:
                    if isinstance(error, REFUSED) and not (self._has_begun or self._next):
                        raise  # nothing is lost yet
                    self._has_begun, self._lost = True, error
                    self._note_going_on = self._note_going_on or self._metrics.lost(error)
                    note_event("target lost", error=type(error).__name__)
                    logger.warning("target lost", extra={"session": self._session_id, "error": str(error)})
        finally:
            self._metrics.held.discard(self._audio)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            if self._next is not None:
                await self._next.close()

    async def _run_on_target(self, reading: asyncio.Task[None]) -> AsyncGenerator[list[Segment]]:
        """Run on the target, from where the last one was lost."""
        session, self._next = self._next or await self._open(self._transcriber), None
        self._session_id, self._running = session.id, session
        if session.grpc_target_stream is not None:
            self._last_address = session.grpc_target_stream.address
        part = _transcript(session)
        self.builder.go_on(part)
        moving = asyncio.create_task(self._move(session))
        updates = session.run(self._audio.pieces(part.position.start_sample))
        try:
            async with aclosing(updates):
                async for segments in updates:
                    if reading.done():
                        await reading
                    if not session.is_paused:  # else another one is opened, from where it was paused
                        self._audio.forget_before(self.builder.position.start_sample)
                    yield self._take(session, segments)
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)
            await session.close()
        if reading.done():
            await reading  # what was wrong with the last message is told as well

    async def _open(self, transcriber: Transcriber) -> Session:
        """Open a session on a target, from the last verified word."""
        live = replace(self._live, position=self.builder.position)
        request = replace(self._request, options=replace(self._request.options, live=live))
        session = self._session(transcriber, request, self._foretold)
        await session.open()
        self.target, self._same_weights = session.target, True
        return session

    async def _move(self, session: Session) -> None:
        """Leave a target that stops, once another one has taken the session; until then it goes on there."""
        if session.grpc_target_stream is None:
            return
        await session.grpc_target_stream.going_away.wait()
        self._next = await opened_elsewhere(
            partial(self._open_behind, session),
            session_id=session.id,
            target=session.grpc_target_stream.address,
        )
        session.leave()

    async def _open_behind(self, session: Session) -> Session:
        """Open a session behind what another one has written, which waits and is left then."""
        # Before it waits: who is asked may take long to answer.
        room = await self._transcriber.find_room(self.target, same_weights=True, avoid=self._last_address)
        session.pause()
        try:
            async with asyncio.timeout(HANDOVER_S):
                return await self._open(room)
        except BaseException as error:
            session.go_on()
            if isinstance(error, TimeoutError):
                raise TargetUnavailable(f"No target has taken the session within {HANDOVER_S:g} s.") from None
            raise

    async def _wait(
        self, error: SpecWhisperError, reading: asyncio.Task[None]
    ) -> AsyncGenerator[list[Segment]]:
        """Wait until a target takes the session; meanwhile the draft goes on alone, where that is wanted."""
        if not self._goes_on_alone or self._drafting is None or not self._request.length.mode.drafts:
            await self._open_patiently(error)
            return
        vocabulary = self.target.vocabulary
        language = self._request.options.language or self.builder.spoken or vocabulary.default_language
        live = replace(self._live, position=self.builder.position, recalls=False)
        options = replace(
            self._request.options,
            language=(language or "en") if vocabulary.languages else None,
            live=live,
            hotwords="",
            initial_prompt="",
            carry_initial_prompt=False,
            word_timestamps=False,
        )
        request = replace(self._request, options=options, length=_alone(self._request.length))
        self._metrics.alone.inc()
        alone = Alone()
        session = self._session(alone, request)
        self._foretold, self._session_id, self._running = alone.foretold, session.id, session
        self.builder.go_on_alone(_transcript(session))
        updates = session.run(self._audio.pieces(live.position.start_sample))
        opening = asyncio.create_task(self._open_patiently(error))
        try:
            async with aclosing(_until(opening, updates)) as changes:
                async for segments in changes:
                    yield self._take(session, segments)
            if reading.done():
                await reading  # whom no target can help need not wait for one
            await opening
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)

    async def _open_patiently(self, error: SpecWhisperError) -> None:
        """Open the next session on a target, rather another than the last one, as soon as one takes it."""
        while True:
            await self._backoff.wait(error)
            self._lost_since_s = self._lost_since_s or monotonic()
            if max(monotonic() - self._lost_since_s, self._audio.num_samples / SAMPLE_RATE) > MAX_OUTAGE_S:
                raise TargetUnavailable(
                    f"Target {self._transcriber.address} was lost for longer than {MAX_OUTAGE_S:g} s."
                )
            if self._audio.is_complete or not self._goes_on_alone:
                self._waits_since_s = self._waits_since_s or monotonic()
                if monotonic() - self._waits_since_s > self._patience_s:
                    raise _given_up(error, self._transcriber.address, self._patience_s)
            try:
                self._next = await self._open(self._transcriber)
                return
            except (*LOST, *REFUSED) as refusal:
                error = refusal

    def _take(self, session: Session, segments: list[Segment]) -> list[Segment]:
        self.speech_events += self._take_events(session)
        return self.builder.take(segments)

    def _take_events(self, session: Session) -> list[VoiceMark]:
        """Take what was not told yet: audio that is heard again has the same events again."""
        events, session.speech_events = session.speech_events, []
        fresh = []
        for mark in events:
            # Where a window was cut, its utterance seems to begin.
            if mark.sample > self._told_to and mark.event is not self._told:
                self._told_to, self._told = mark.sample, mark.event
                fresh.append(mark)
        return fresh

    async def _read(self, audio: AsyncIterator[bytes]) -> None:
        try:
            async for pcm in audio:
                await self._audio.put(pcm)
        finally:
            self._audio.finish()

    def _session(
        self, transcriber: Transcriber, request: SessionRequest, foretold: Foretold | None = None
    ) -> Session:
        return Session(
            request,
            transcriber,
            self.target,
            self._drafting,
            foretold,
            same_weights=self._same_weights,
            avoid=self._last_address,
        )


def _given_up(error: SpecWhisperError, address: str, patience_s: float) -> SpecWhisperError:
    """Return what a session ends with that no target has taken for so long."""
    kind = PairMismatch if isinstance(error, PairMismatch) else TargetUnavailable
    return kind(
        f"Target {address} was lost, and none has taken the session in {patience_s:g} s; "
        f"the last one said: {error}"
    )


def _transcript(session: Session) -> LiveTranscript:
    if not isinstance(session.builder, LiveTranscript):
        raise RuntimeError("Only live audio goes on without a target.")
    return session.builder


def _alone(length: DraftLength) -> DraftLength:
    """Give how a draft writes that nobody helps: it neither waits nor pauses, for nobody would go on."""
    mode = Mode.FULL if length.mode.drafts else length.mode
    return DraftLength(mode, length.gamma, min_confidence=0.0)


async def _until(
    opening: asyncio.Task[None], updates: AsyncGenerator[list[Segment]]
) -> AsyncGenerator[list[Segment]]:
    """Yield updates until a target has taken the session, or the audio has ended."""
    async with aclosing(updates):
        while not opening.done():
            async with Following(updates) as following:
                if not await following.is_there(opening) or (segments := following.item) is None:
                    return
            yield segments
