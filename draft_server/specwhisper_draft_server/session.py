"""A session: audio goes to draft and target, their texts become the transcript."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.engine.draft_session import Drafted
from specwhisper.errors import InvalidAudio, TargetUnavailable
from specwhisper.live import EndpointingOptions, LiveOptions, LivePosition
from specwhisper.observe.tracing import WindowSpans, note_event
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.live_windows import LivePieces, LiveWindows, Piece, follow_windows
from specwhisper.transcription.resume_point import ResumePoint, audio_needed_from
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Commit,
    ConfirmEvery,
    EndUtterance,
    Mode,
    Segment,
    VoiceEvent,
    VoiceMark,
    WindowOpened,
)
from specwhisper.wire.pacing import PIECE_BYTES
from specwhisper_draft_server.draft_source import DraftSource, SessionDraft
from specwhisper_draft_server.link.progress import LiveProgress, Progress, ResumeTracker, SessionHints
from specwhisper_draft_server.link.resuming import OpenOnce, ResumingTargetStream
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.transcriber import TargetDescription, TargetStream, Transcriber
from specwhisper_draft_server.voice_activity import VoiceActivity

logger = logging.getLogger(__name__)

INTERVAL_S = 0.05  # draft text changes with every block, too often to be read
UNDRAFTED_STEP_MS = 1_000  # new audio between two texts of the target, if no draft shows text
INTERVAL_SAMPLES = 5 * SAMPLE_RATE  # between resume points in silence: bounds the audio that clients keep


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A client's request for a transcription.

    Attributes
    ----------
    endpointing : how utterances are found in live audio; with ``None`` all audio is speech.
    added_latency_ms : latency injected into the round trip to the target.
    hints : those that arrive while it runs.
    """

    options: DecodingOptions
    length: DraftLength
    endpointing: EndpointingOptions | None = None
    added_latency_ms: int = 0
    hints: SessionHints = field(default_factory=SessionHints)


@dataclass(slots=True)
class SessionUpdate:
    """The news since the last update.

    Text that is not final is read from the session's ``builder``.

    Attributes
    ----------
    segments : text that has become final.
    speech_events : utterances of live audio that begin or end.
    """

    segments: list[Segment] = field(default_factory=list)
    speech_events: list[VoiceMark] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.segments or self.speech_events)


class Debouncer:
    """Wakes the task that reports a session when other tasks have changed it.

    Urgent changes are reported at once, others together at intervals.
    """

    def __init__(self) -> None:
        self._has_changed = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._due_s = 0.0  # when the next change that isn't urgent may be reported

    def notify(self, *, urgent: bool = False) -> None:
        self._has_changed.set()
        if urgent:
            self._is_urgent.set()

    async def wait(self) -> None:
        """Wait until there are changes to report; all changes so far count as reported."""
        await self._has_changed.wait()
        try:
            async with asyncio.timeout_at(self._due_s):
                await self._is_urgent.wait()
        except TimeoutError:
            pass
        self._has_changed.clear()
        self._is_urgent.clear()
        self._due_s = asyncio.get_running_loop().time() + INTERVAL_S


class ClientEnd(NamedTuple):
    """The client's end of an utterance, not yet answered.

    Attributes
    ----------
    last : the last complete piece before it, after whose text it is answered; ``None`` if all was final.
    sample : where it is in the audio.
    is_empty : whether nothing was said since the last end, so that empty text answers it.
    """

    last: Piece | None
    sample: int
    is_empty: bool


class ClientEnds:
    """The ends of utterances that a client asks for, each of which one final text answers.

    That text is empty if nothing was said.

    Attributes
    ----------
    num_answered : answered ends, in this session and those that it continues.
    """

    def __init__(self, num_answered: int = 0) -> None:
        self.num_answered = num_answered
        self._open: deque[ClientEnd] = deque()

    def add(self, pieces: LivePieces, sample: int, *, is_empty: bool) -> None:
        """Note an end that the pieces already contain."""
        complete = [piece for piece in pieces.all if piece.is_complete]
        self._open.append(ClientEnd(complete[-1] if complete else None, sample, is_empty))

    def take_empty(self, pieces: LivePieces) -> list[ClientEnd]:
        """Return the ends without text that are due once the pieces before them are final."""
        waiting = set(pieces.all)
        empty = []
        while self._open and self._open[0].last not in waiting:
            self.num_answered += 1
            if (end := self._open.popleft()).is_empty:
                empty.append(end)
        return empty


class Session:
    """One client's transcription, of a recording or of live audio.

    It runs on one target after another. Without a target a live draft continues, and its text waits to be
    confirmed.

    Parameters
    ----------
    target : the expected target, or the last known one.
    resume_timeout_s : time in seconds in which it looks for a target after a loss.
    resume_point : where to continue another session's transcription; ``None`` begins a new one.
    continue_unverified : whether live audio waits much longer for a target.
    same_weights : whether only targets with the weights of ``target`` may run it, because text of theirs
        exists.

    Attributes
    ----------
    target : the target that has taken the session, once there is one.
    builder : the transcript of the audio so far.
    is_live : whether its audio is.
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
        resume_point: ResumePoint | LivePosition | None = None,
        continue_unverified: bool = False,
        same_weights: bool = False,
    ) -> None:
        self.id = secrets.token_hex(8)
        self.target = target
        self._request = request
        self._transcriber = transcriber
        self._drafting = drafting if request.length.mode.drafts else None
        self._metrics = metrics
        self._resume_timeout_s = resume_timeout_s
        self._waits_long = continue_unverified
        self._same_weights = same_weights or resume_point is not None
        self._debouncer = Debouncer()
        self._windows = follow_windows(target.vocabulary, request.options)
        self._draft: SessionDraft | None = None
        self._stream: ResumingTargetStream | None = None
        self._news = SessionUpdate()  # not yielded yet
        self._draft_shows = self._drafting is not None  # whether the draft shows text of growing pieces
        self._is_complete = False  # whether all audio has been sent
        self.builder: TranscriptBuilder | LiveTranscript
        self._live: LiveTranscript | None = None  # the builder of live audio
        self.is_live = isinstance(self._windows, LiveWindows)
        self._begun_by_other = resume_point if isinstance(resume_point, ResumePoint) else None
        self._is_replayed = False  # whether the text of that session's open window has come
        if isinstance(self._windows, LiveWindows):
            position = resume_point if isinstance(resume_point, LivePosition) else LivePosition()
            self._windows.begin_at(position)
            self.builder = self._live = LiveTranscript(target.vocabulary, position.next_sample)
            self._voice = VoiceActivity(
                request.endpointing, position.next_sample, is_speech=position.is_speech
            )
            self.builder.num_samples = position.start_sample
            self.builder.language = request.options.language or self.builder.language
            self._ends = ClientEnds(position.num_ends)
            self._silent_to = position.next_sample  # the detector's boundary before the next piece
            self._progress: Progress = LiveProgress(self._windows)
        else:
            self.builder = TranscriptBuilder(target.vocabulary)
            self._progress = ResumeTracker(target.limits.max_ahead_tokens, self._begun_by_other)
            if self._begun_by_other is not None:
                window = self._begun_by_other.resume.window
                self._windows.on_window_opened(window)
                self.builder.num_samples = audio_needed_from(window.start_sample)
                self.builder.language_probs = self._begun_by_other.language_probs

    @property
    def has_lost_draft(self) -> bool:
        """Whether its draft has failed, so that it runs as in ``target-only``."""
        return self._draft is not None and self._draft.has_failed

    def resume_point(self) -> ResumePoint | LivePosition | None:
        """Return where another session would continue; ``None`` at the beginning of a recording."""
        if isinstance(self._progress, ResumeTracker):
            return self._progress.resume_point()
        windows = self._progress.windows
        position = windows.position
        if not position.is_speech:
            # From there another detector finds the same utterances.
            position = replace(position, next_sample=max(windows.final_to, self._silent_to))
        return replace(position, num_ends=self._ends.num_answered)

    async def run(self, audio: AsyncIterator[bytes | EndUtterance]) -> AsyncGenerator[SessionUpdate]:
        """Transcribe canonical PCM; yield an update after each change.

        The first one is empty: the session is open.
        """
        log = {"session": self.id, "mode": self._request.length.mode.value}
        async with self._open_draft() as self._draft, self._targets() as stream:
            self._stream, self.target = stream, stream.target
            logger.info("session opened", extra=log)
            note_event("session opened", **log)
            following = asyncio.create_task(self._follow(stream))
            sending = asyncio.create_task(self._send(stream, audio))
            for task in (following, sending):
                task.add_done_callback(lambda _: self._debouncer.notify(urgent=True))
            try:
                yield SessionUpdate()
                while not following.done():
                    if sending.done():
                        await sending
                    await self._debouncer.wait()
                    yield self._take_update(stream)
                if update := self._take_update(stream):
                    yield update
                await following
                if self._draft is not None:
                    self.builder.statistics.observe(await self._draft.last_report())
                if not self._is_complete:
                    raise TargetUnavailable(
                        f"Target {self._transcriber.address} ended the session before its audio."
                    )
            finally:
                for task in (following, sending):
                    task.cancel()
                await asyncio.gather(following, sending, return_exceptions=True)
                logger.info("session closed", extra=log)

    def _targets(self) -> ResumingTargetStream:
        open_once: OpenOnce = self._open_target
        if self._request.added_latency_ms:
            from specwhisper_draft_server.link.latency_injection import delayed

            open_once = partial(delayed, open_once, self._request.added_latency_ms)
        return ResumingTargetStream(
            self.id,
            open_once,
            self.target,
            self._progress,
            self._request.hints,
            self._resume_timeout_s,
            self._metrics,
            waits_long=self._waits_long,
            same_weights=self._same_weights,
            on_change=self._on_target_changed,
        )

    def _open_target(
        self, target: TargetDescription, **wanted: Any
    ) -> AbstractAsyncContextManager[TargetStream]:
        """Open a stream on a target; it doesn't wait for candidates once the draft has failed."""
        options, mode = self._request.options, self._request.length.mode
        drafting = None if self.has_lost_draft else self._drafting
        if drafting is None:
            mode = Mode.TARGET_ONLY
        if options.live is not None:
            options = replace(options, live=LiveOptions(confirm_every_ms=self._confirm_every_ms))
        name = drafting.name if drafting is not None else ""
        return self._transcriber.open(self.id, target, mode=mode, options=options, draft_model=name, **wanted)

    def _open_draft(self) -> AbstractAsyncContextManager[SessionDraft | None]:
        if self._drafting is None:
            return nullcontext()
        request = self._request
        return self._drafting.session(
            self.id, self.target, request.length, request.options, receive=self._on_drafted
        )

    @property
    def _confirm_every_ms(self) -> int | None:
        """How often the target decodes a growing live piece: as asked, or if no draft shows text."""
        live = self._request.options.live
        own_ms = live.confirm_every_ms if live is not None else None
        return own_ms or (None if self._draft_shows else UNDRAFTED_STEP_MS)

    # Audio

    async def _send(self, stream: ResumingTargetStream, audio: AsyncIterator[bytes | EndUtterance]) -> None:
        """Send all audio; raise :class:`InvalidAudio` if there is none."""
        async for piece in audio:
            if isinstance(piece, EndUtterance):
                if self.is_live and self.builder.num_samples < self._voice.start_sample:
                    continue  # that utterance is already final
                await self._end_utterance(stream)
                continue
            for start in range(0, len(piece), PIECE_BYTES):
                pcm = piece[start : start + PIECE_BYTES]
                await self._send_piece(stream, pcm, await self._detect(pcm) if self.is_live else ())
        if not self.builder.num_samples:
            raise InvalidAudio("The recording is empty: it holds no audio samples.")
        marks = self._voice.end_utterance() if self.is_live else ()
        await self._send_piece(stream, b"", marks, is_last=True)

    async def _end_utterance(self, stream: ResumingTargetStream) -> None:
        """End the open utterance; without one, an empty one ends."""
        if isinstance(self._windows, LiveWindows):
            pieces = self._windows.pieces
            before = pieces.num_complete
            await self._send_piece(stream, b"", self._voice.end_utterance())
            self._ends.add(pieces, self.builder.num_samples, is_empty=pieces.num_complete == before)
            self._answer_ends()

    def _answer_ends(self) -> None:
        if isinstance(self._windows, LiveWindows) and self._live is not None:
            utterance = self._windows.position.num_utterances
            for end in self._ends.take_empty(self._windows.pieces):
                self._news.segments.append(self._live.empty_end(utterance, end.sample))
                self._debouncer.notify(urgent=True)

    async def _detect(self, pcm: bytes) -> Sequence[VoiceMark]:
        """Find utterances in live audio, except in audio that was final before the session."""
        num_known = max(0, self._voice.start_sample - self.builder.num_samples)
        return await self._voice.detect(pcm[num_known * BYTES_PER_SAMPLE :])

    async def _send_piece(
        self, stream: ResumingTargetStream, pcm: bytes, marks: Sequence[VoiceMark], *, is_last: bool = False
    ) -> None:
        chunk = AudioChunk(self.builder.num_samples, pcm, is_last, tuple(marks))
        self.builder.num_samples += len(pcm) // BYTES_PER_SAMPLE
        before = self._windows.needed_from
        self._windows.append_audio(chunk, self.builder.num_samples)
        if isinstance(self._windows, LiveWindows) and self._windows.pieces.current is None:
            self._silent_to = self._voice.boundary_sample
        if self._windows.needed_from // INTERVAL_SAMPLES > before // INTERVAL_SAMPLES:
            self._debouncer.notify()
        self._news.speech_events += [mark for mark in marks if mark.event is not VoiceEvent.CUT]
        if marks:
            self._debouncer.notify(urgent=True)
        self._is_complete = is_last
        self._send_draft(chunk)  # first: the draft needs the audio of every window that the target opens
        await stream.send_audio(chunk)

    # Text

    def _on_drafted(self, drafted: Drafted) -> None:
        if drafted.candidates is not None and self._stream is not None:
            if (on_target := self._stream.current) is not None:
                on_target.send(drafted.candidates)
            self.builder.observe(drafted.candidates)
        if drafted.hint is not None:
            self._request.hints.put_recognised(drafted.hint)
            if self._live is not None:
                self._live.show_recognised(drafted.hint)
        if drafted.hypothesis is not None and self._live is not None:
            self._live.show(drafted.hypothesis)
        self.builder.statistics.observe(drafted.report)
        self._debouncer.notify()
        known = self._draft_shows if drafted.knows_language is None else drafted.knows_language
        shows = known and not self.has_lost_draft
        if self._live is not None and shows != self._draft_shows:
            self._draft_shows = shows
            if not shows:
                self._live.forget_draft()
            if self._stream is not None:
                self._stream.confirm_every(ConfirmEvery(self._confirm_every_ms))

    def _send_draft(self, message: AudioChunk | WindowOpened | Commit) -> None:
        if self._draft is not None:
            self._draft.send(message)

    async def _follow(self, stream: ResumingTargetStream) -> None:
        with closing(WindowSpans()) as spans:
            async for event in stream.events():
                spans.on_event(event)
                self._take_in(event)
                self._debouncer.notify(urgent=isinstance(event, Commit) and event.is_final)
                await asyncio.sleep(0)  # many events may have come at once; other tasks get a turn in between

    def _take_in(self, event: WindowOpened | Commit) -> None:
        self._send_draft(event)
        if isinstance(event, WindowOpened):
            self._windows.on_window_opened(event.window)
        else:
            self._windows.on_commit(event)
        segments = self.builder.observe(event)
        begun = self._begun_by_other
        if begun is not None and isinstance(event, Commit) and event.window_id == begun.resume.window.id:
            if not self._is_replayed:  # the earlier session has counted this text
                self._is_replayed, self.builder.statistics = True, SpeculationStatistics()
            if begun.is_sent:
                return
        self._news.segments += segments
        self._answer_ends()

    def _on_target_changed(self) -> None:
        if self._live is not None and self._stream is not None:
            self._live.is_unverified = self._stream.current is None
            self._live.lose_target()
        if self._stream is not None:
            self.target = self._stream.target
        self._debouncer.notify(urgent=True)

    def _take_update(self, stream: ResumingTargetStream) -> SessionUpdate:
        self.target = stream.target
        self.builder.statistics.min_round_trip_ns = stream.min_round_trip_ns
        news, self._news = self._news, SessionUpdate()
        return news
