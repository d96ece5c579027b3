"""A session: audio goes to draft and target, their events become the transcript."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

from specwhisper.engine.draft_state import Drafted
from specwhisper.errors import ServerDraining, TargetUnavailable
from specwhisper.live import EndpointingOptions
from specwhisper.observe.tracing import note_event
from specwhisper.observe.window_spans import WindowSpans
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.live_windows import follow_windows
from specwhisper.transcription.resume_point import ResumePoint
from specwhisper.transcription.transcriber import TargetDescription, TargetStream
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import (
    AudioChunk,
    Candidates,
    Commit,
    EndUtterance,
    Mode,
    Resume,
    Segment,
    Window,
    WindowOpened,
)
from specwhisper_draft_server.debounce import Debouncer
from specwhisper_draft_server.drafts.source import DraftSource, SessionDraft
from specwhisper_draft_server.link.resuming import RemoteTargetStream, audio_needed_from
from specwhisper_draft_server.sessions.audio_feed import AudioFeed
from specwhisper_draft_server.sessions.draft_only import UnverifiedText
from specwhisper_draft_server.sessions.recording_progress import RecordingProgress
from specwhisper_draft_server.sessions.session_hints import SessionHints
from specwhisper_draft_server.sessions.update import SessionUpdate
from specwhisper_draft_server.voice_activity import VoiceActivity

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A client's request for a transcription.

    Attributes
    ----------
    endpointing : how utterances are found in live audio; ``None`` treats all audio as speech.
    added_latency_ms : latency injected into the round trip to the target.
    hints : texts that arrive while it runs.
    """

    options: DecodingOptions
    length: DraftLength
    endpointing: EndpointingOptions | None = None
    added_latency_ms: int = 0
    hints: SessionHints = field(default_factory=SessionHints)


class TargetOpener(Protocol):
    """Opener of target streams; every :class:`Transcriber` is one.

    ``address`` names the target in messages.
    """

    address: str

    def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        same_weights: bool = False,
        avoid: str = "",
        resume: Resume | None = None,
    ) -> AbstractAsyncContextManager[TargetStream]:
        """Open a stream, as :meth:`Transcriber.open` does."""


class Session:
    """One client's transcription, or the part of a live one that runs on one target.

    Parameters
    ----------
    target : the expected target; the one that the stream opens on has the same vocabulary.
    unverified : the draft-only text of the same audio.
    resume_point : where to continue a recording that another session began; ``None`` begins it.
    same_weights : whether only a target with the weights of ``target`` may run it: text of theirs exists.
    avoid : address of a target that is used only if no other one takes the session.
    session_id : for logs, and the draft's engine: unique, by default a random one.

    Attributes
    ----------
    target : once the stream is open, the target that runs it.
    builder : the transcript of the audio so far.
    remote : the stream of live audio that may be migrated, once it is open.
    """

    def __init__(
        self,
        request: SessionRequest,
        opener: TargetOpener,
        target: TargetDescription,
        drafting: DraftSource | None,
        *,
        unverified: UnverifiedText | None = None,
        resume_point: ResumePoint | None = None,
        same_weights: bool = False,
        avoid: str = "",
        session_id: str = "",
    ) -> None:
        self.id = session_id or secrets.token_hex(8)
        self.target = target
        self.remote: RemoteTargetStream | None = None
        self._request = request
        self._opener = opener
        self._mode = request.length.mode
        self._drafting = drafting if self._mode.drafts else None
        self._unverified = unverified if self._mode.drafts else None
        self._resume_point = resume_point
        self._same_weights = same_weights or resume_point is not None
        self._avoid = avoid
        self._debouncer = Debouncer()
        self._progress = RecordingProgress(target.limits.max_ahead_tokens, resume_point)
        windows = follow_windows(target.vocabulary, request.options)
        if resume_point is not None:
            windows.on_window_opened(resume_point.resume.window)
        self.builder: TranscriptBuilder | LiveTranscript
        self._live: LiveTranscript | None = None  # the same, of live audio
        voice = None
        if (live := request.options.live) is None:
            self.builder = _recording_transcript(target, resume_point)
        else:
            self.builder = self._live = LiveTranscript(target.vocabulary, live.position)
            voice = VoiceActivity(request.endpointing, live.position.start_sample)
        self._audio = AudioFeed(self.builder, voice, windows, self._debouncer, self._send_draft)
        self._draft: SessionDraft | None = None
        self._stream: TargetStream | None = None
        self._open_stream = AsyncExitStack()
        self._final: list[Segment] = []  # not yielded yet
        self._takes_events = asyncio.Event()
        self._takes_events.set()
        self._is_left = False

    @property
    def has_lost_draft(self) -> bool:
        """Whether its draft has failed: from then on it runs as in ``target-only``."""
        return self._draft is not None and self._draft.has_failed

    @property
    def _start_sample(self) -> int:
        """First sample that the target decodes."""
        if self._request.options.live is not None:
            return self._request.options.live.position.start_sample
        return 0 if self._resume_point is None else self._resume_point.resume.window.start_sample

    @property
    def holds_events(self) -> bool:
        """Whether the target's events wait."""
        return not self._takes_events.is_set()

    def hold_events(self) -> None:
        """Let the target's events wait, so that nothing becomes final."""
        self._takes_events.clear()

    def release_events(self) -> None:
        """Follow the target's events again."""
        self._takes_events.set()

    def leave(self) -> None:
        """End the run with :class:`ServerDraining`, after the events that were taken in."""
        self._is_left = True
        self._debouncer.notify(urgent=True)

    async def open(self) -> TargetStream:
        """Open the stream to a target; :meth:`run` does so if it is not open yet."""
        if self.has_lost_draft:
            self._mode, self._drafting = Mode.TARGET_ONLY, None  # the target need not wait for candidates
        stream = await self._open_stream.enter_async_context(
            self._opener.open(
                self.id,
                self.target,
                self._mode,
                self._request.options,
                draft_model=self._drafting.name if self._drafting else "",
                same_weights=self._same_weights,
                avoid=self._avoid,
                resume=self._resume_point.resume if self._resume_point else None,
            )
        )
        self.target = stream.target
        if isinstance(stream, RemoteTargetStream):
            self.remote = stream
        if self._request.added_latency_ms:
            from specwhisper_draft_server.link.latency_injection import DelayedTargetStream

            stream = DelayedTargetStream(stream, self._request.added_latency_ms)
        self._stream = stream
        return stream

    async def close(self) -> None:
        """Close the stream of a session that is not run."""
        await self._open_stream.aclose()

    async def run(self, audio: AsyncIterator[bytes | EndUtterance]) -> AsyncGenerator[SessionUpdate]:
        """Transcribe canonical PCM; yield an update after each change.

        The first one is empty: the session is open.
        """
        log = {"session": self.id, "mode": self._request.length.mode.value}
        async with self._open_draft() as self._draft, self._open_stream:
            stream = self._stream or await self.open()
            logger.info("session opened", extra=log)
            note_event("session opened", **log)
            hinting = asyncio.create_task(self._request.hints.send(stream.hint, self._start_sample))
            following = asyncio.create_task(self._follow(stream))
            sending = asyncio.create_task(self._audio.send(stream, audio))
            for task in (following, sending):
                task.add_done_callback(lambda _: self._debouncer.notify(urgent=True))
            try:
                yield SessionUpdate()
                while not (following.done() or self._is_left):
                    if sending.done():
                        await sending
                    await self._debouncer.wait()
                    yield self._take_update(stream)
                # Also of a lost target: the next one continues after this.
                if update := self._take_update(stream):
                    yield update
                if self._is_left and not following.done():
                    raise ServerDraining("Another target has taken the session.")
                await following
                if self._draft is not None:
                    self.builder.statistics.observe(await self._draft.last_report())
                if not self._audio.is_complete:
                    raise TargetUnavailable(
                        f"Target {self._opener.address} ended the session before its audio."
                    )
            finally:
                tasks = (following, sending, hinting)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                logger.info("session closed", extra=log)

    def resume_point(self) -> ResumePoint | None:
        """Return where another session would continue the recording.

        Return ``None`` if it is at its beginning.
        """
        return self._progress.resume_point()

    def _open_draft(self) -> AbstractAsyncContextManager[SessionDraft | None]:
        if self._drafting is None:
            return nullcontext()
        request, limits = self._request, self.target.limits
        return self._drafting.session(
            self.id,
            self.target,
            replace(request.length, gamma=min(request.length.gamma, limits.max_block_tokens)),
            request.options,
            receive=self._on_drafted,
        )

    def _on_drafted(self, drafted: Drafted) -> None:
        """Send a block or a hint to the target, and count it."""
        if drafted.candidates is not None:
            if self._stream is None:
                raise RuntimeError("A draft proposes nothing before the target has opened a window.")
            self._propose(self._stream, [drafted.candidates])
        if drafted.hint is not None:
            self._request.hints.put_recognised(drafted.hint)
        if drafted.belief is not None and self._live is not None:
            self._live.update_belief(drafted.belief.window, drafted.belief.tokens)
        self.builder.statistics.observe(drafted.report)
        self._debouncer.notify()

    def _propose(self, stream: TargetStream, blocks: list[Candidates]) -> None:
        for block in blocks:
            stream.propose(block)
            self.builder.observe(block)

    def _send_draft(self, message: AudioChunk | WindowOpened | Commit) -> None:
        if self._draft is not None and self._mode.drafts:
            self._draft.send(message)

    async def _follow(self, stream: TargetStream) -> None:
        """Take in the target's events, until the transcript is complete."""
        with closing(WindowSpans()) as spans:
            async for event in stream.events():
                await self._takes_events.wait()
                spans.on_event(event)
                self._take_in(event)
                if (commit := self._progress.replay(self.target.limits.max_ahead_tokens)) is not None:
                    self._take_in(commit)
                    self.builder.statistics = SpeculationStatistics()  # the session before has counted it
                if isinstance(event, WindowOpened) and not event.opening:
                    self._propose_unverified(stream, event.window)
                self._debouncer.notify(urgent=isinstance(event, Commit) and event.is_final)

    def _take_in(self, event: WindowOpened | Commit) -> None:
        self._send_draft(event)
        self._audio.observe(event)
        segments = self.builder.observe(event)
        if self._live is None:
            self._progress.observe(event)
        if not self._progress.is_reported(event):
            self._final += segments

    def _propose_unverified(self, stream: TargetStream, window: Window) -> None:
        """Propose a window's draft-only text, until the draft has candidates for it."""
        if self._unverified is not None:
            blocks = self._unverified.candidates(window, self.target.vocabulary, stream.limits)
            self._propose(stream, blocks)

    def _take_update(self, stream: TargetStream) -> SessionUpdate:
        self.builder.statistics.min_round_trip_ns = stream.min_round_trip_ns
        final, self._final = self._final, []
        steps = self._live.take_steps() if self._live is not None else ()
        return SessionUpdate(final, self._audio.take_speech_events(), steps)


def _recording_transcript(target: TargetDescription, resume_point: ResumePoint | None) -> TranscriptBuilder:
    builder = TranscriptBuilder(target.vocabulary)
    if resume_point is not None:
        builder.num_samples = audio_needed_from(resume_point.resume.window.start_sample)
        builder.language_probs = resume_point.language_probs
    return builder
