"""One client's transcription: its audio goes to draft and target, what they say becomes text."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from typing import cast

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.engine.draft_state import Drafted
from specwhisper.errors import InvalidAudio, ServerDraining, TargetUnavailable
from specwhisper.live import EndpointingOptions
from specwhisper.observe.tracing import WindowSpans, note_event
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.foresight import foresight
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.resumption import Checkpoint, Resumption
from specwhisper.transcription.transcriber import TargetDescription, TargetStream, Transcriber
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Commit,
    Mode,
    Segment,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
)
from specwhisper_draft_server.debounce import Changes
from specwhisper_draft_server.drafting import Drafting, DraftStream
from specwhisper_draft_server.link.grpc_target_stream import PIECE_BYTES
from specwhisper_draft_server.link.latency_injection import DelayedTargetStream
from specwhisper_draft_server.sessions.resuming import SessionThere, audio_needed_from
from specwhisper_draft_server.sessions.unverified_text import Foretold
from specwhisper_draft_server.voice_activity import Voice

logger = logging.getLogger(__name__)

TELL_SAMPLES = 5 * SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What a client asks for.

    Attributes
    ----------
    endpointing : of live audio; ``None`` takes everything for speech.
    added_latency_ms : to the round trip between here and the target.
    """

    options: DecodingOptions
    length: DraftLength
    endpointing: EndpointingOptions | None = None
    added_latency_ms: int = 0


class Session:
    """Runs one transcription, with the help of a draft where there is one.

    Parameters
    ----------
    target : what it is set up for; the target that it opens on has this vocabulary.
    foretold : what a draft wrote of the audio while no target was there.
    checkpoint : where a recording goes on that another session began; ``None`` begins it.
    same_weights : whether only a target with the weights of ``target`` may run it: there is text of theirs.
    avoid : address of a target that takes it only where no other does.

    Attributes
    ----------
    target : once it is open, what the target is that runs it.
    builder : the transcript so far, of the audio taken in so far.
    speech_events : that somebody began or ended to speak, in live audio; whoever tells it clears it.
    grpc_target_stream : that of live audio, once it is open on a target that may say that it stops.
    """

    def __init__(
        self,
        request: SessionRequest,
        transcriber: Transcriber,
        target: TargetDescription,
        drafting: Drafting | None,
        foretold: Foretold | None = None,
        checkpoint: Checkpoint | None = None,
        *,
        same_weights: bool = False,
        avoid: str = "",
    ) -> None:
        self.id = secrets.token_hex(8)
        self.target = target
        self._same_weights = same_weights or checkpoint is not None
        self._avoid = avoid
        live = request.options.live
        self.builder: TranscriptBuilder | LiveTranscript
        if live is None:
            self.builder, self._voice = TranscriptBuilder(target.vocabulary), None
            if checkpoint is not None:
                self.builder.num_samples = audio_needed_from(checkpoint.resume.window.start_sample)
                self.builder.language_probs = checkpoint.language_probs
        else:
            self.builder = LiveTranscript(target.vocabulary, live.position)
            self._voice = Voice(request.endpointing, live.position.start_sample)
        self.speech_events: list[VoiceMark] = []
        self.grpc_target_stream: SessionThere | None = None
        self._is_speech = False
        self._foresight = foresight(target.vocabulary, request.options)
        if checkpoint is not None:
            self._foresight.observe(WindowOpened(checkpoint.resume.window))
        self._request = request
        self._transcriber = transcriber
        self._drafting = drafting if request.length.mode.drafts else None
        self._foretold = foretold if request.length.mode.drafts else None
        self._checkpoint = checkpoint
        self._progress = Resumption(target.limits.max_ahead_tokens)
        self._told_window_id = checkpoint.resume.window.id if checkpoint and checkpoint.is_sent else None
        self._is_retold = checkpoint is None  # whether draft and text have heard what was committed before
        self._draft: DraftStream | None = None
        self._is_opened_without_draft = False
        self._remote: TargetStream | None = None
        self._has_all_audio = False  # whether the last piece is on its way
        self._fresh: list[Segment] = []
        self._changes = Changes()
        self._has_moved_on = asyncio.Event()
        self._there = AsyncExitStack()  # what is open at the target
        self._may_take_in = asyncio.Event()
        self._may_take_in.set()
        self._is_left = False

    async def open(self) -> TargetStream:
        """Open it at a target, which has a place for it then; :meth:`run` does it where nobody has."""
        self._is_opened_without_draft = self.has_lost_draft  # so the target need not wait for candidates
        drafting = None if self._is_opened_without_draft else self._drafting
        remote = await self._there.enter_async_context(
            self._transcriber.open(
                self.id,
                self.target,
                Mode.TARGET_ONLY if self._is_opened_without_draft else self._request.length.mode,
                self._request.options,
                draft_model=drafting.name if drafting else "",
                same_weights=self._same_weights,
                avoid=self._avoid,
                resume=self._checkpoint.resume if self._checkpoint else None,
            )
        )
        self.target = remote.target
        # By what it offers: it may be wrapped.
        self.grpc_target_stream = cast(SessionThere, remote) if hasattr(remote, "going_away") else None
        self._remote = remote
        if self._request.added_latency_ms:
            self._remote = DelayedTargetStream(remote, self._request.added_latency_ms)
        return self._remote

    async def close(self) -> None:
        """Give the place back; needed only where it does not run."""
        await self._there.aclose()

    @property
    def has_lost_draft(self) -> bool:
        """Whether its draft has failed: from there on it runs as in ``target-only``."""
        return self._draft is not None and self._draft.has_failed

    @property
    def is_paused(self) -> bool:
        """Whether what the target says is not taken in."""
        return not self._may_take_in.is_set()

    def pause(self) -> None:
        """Take in nothing more, so that nothing becomes final, until it goes on or is left."""
        self._may_take_in.clear()

    def go_on(self) -> None:
        """Take in what the target says again."""
        self._may_take_in.set()

    def leave(self) -> None:
        """End the run as if its target were lost, behind what was taken in."""
        self._is_left = True
        self._changes.note(is_pressing=True)

    async def run(self, audio: AsyncIterator[bytes]) -> AsyncGenerator[list[Segment]]:
        """Transcribe canonical PCM; yield the segments that became final whenever anything has changed.

        The first time there are none: the session is open.
        """
        log = {"session": self.id, "mode": self._request.length.mode.value}
        async with self._open_draft() as self._draft, self._there:
            remote = self._remote or await self.open()
            logger.info("session opened", extra=log)
            note_event("session opened", **log)
            follow = asyncio.create_task(self._follow(remote))
            send_audio = asyncio.create_task(self._send_audio(remote, audio))
            for task in (follow, send_audio):
                task.add_done_callback(lambda _: self._changes.note(is_pressing=True))
            try:
                yield []
                while not (follow.done() or self._is_left):
                    if send_audio.done():
                        await send_audio
                    await self._changes.wait()
                    yield self._take_fresh(remote)
                if self._has_untold:  # also of a lost target: whoever goes on elsewhere goes on behind it
                    yield self._take_fresh(remote)
                if self._is_left and not follow.done():
                    raise ServerDraining("The target is stopping, and another one has taken the session.")
                await follow
                if self._draft is not None:
                    self.builder.statistics.observe(await self._draft.last_report())
                if not self._has_all_audio:
                    raise TargetUnavailable(
                        f"Target {self._transcriber.address} ended the session before its audio."
                    )
            finally:
                follow.cancel()
                send_audio.cancel()
                await asyncio.gather(follow, send_audio, return_exceptions=True)
                logger.info("session closed", extra=log)

    def _open_draft(self) -> AbstractAsyncContextManager[DraftStream | None]:
        if self._drafting is None:
            return nullcontext()
        request, limits = self._request, self.target.limits
        return self._drafting.session(
            self.id,
            self.target,
            replace(request.length, gamma=min(request.length.gamma, limits.max_block_tokens)),
            request.options,
            receive=self._take,
        )

    def _take(self, drafted: Drafted) -> None:
        """Pass a block on to the target, and count it."""
        if drafted.candidates is not None:
            if self._remote is None:
                raise RuntimeError("A draft proposes nothing before the target has opened a window.")
            self._remote.propose(drafted.candidates)
            self.builder.observe(drafted.candidates)
        if drafted.belief is not None and isinstance(self.builder, LiveTranscript):
            self.builder.believe(drafted.belief.window, drafted.belief.tokens)
        self.builder.statistics.observe(drafted.report)
        self._changes.note()

    def _take_fresh(self, remote: TargetStream) -> list[Segment]:
        """Give what has become final meanwhile."""
        self.builder.statistics.min_round_trip_ns = remote.min_round_trip_ns
        fresh, self._fresh = self._fresh, []
        return fresh

    @property
    def _has_untold(self) -> bool:
        """Whether there is something that nobody will tell later."""
        steps = self.builder.steps if isinstance(self.builder, LiveTranscript) else ()
        return bool(self._fresh or self.speech_events or steps)

    def _tell_draft(self, message: AudioChunk | WindowOpened | Commit) -> None:
        if self._draft is not None and not self._is_opened_without_draft:
            self._draft.hear(message)

    async def _follow(self, remote: TargetStream) -> None:
        """Take in what the target says, until the transcript is whole."""
        with closing(WindowSpans()) as windows:
            async for event in remote.events():
                await self._may_take_in.wait()
                windows.observe(event)
                self._take_in(event)
                if self._checkpoint is not None and not self._is_retold:
                    self._retell(self._checkpoint)
                if isinstance(event, WindowOpened) and not event.expected:
                    self._propose_foretold(remote, event.window)
                self._changes.note(is_pressing=isinstance(event, Commit) and event.is_final)

    def _take_in(self, event: WindowOpened | Commit) -> None:
        self._tell_draft(event)
        self._foresight.observe(event)
        self._has_moved_on.set()
        fresh = self.builder.observe(event)
        if self._request.options.live is None:
            self._progress.observe(event)
        if not (isinstance(event, Commit) and event.window_id == self._told_window_id):
            self._fresh += fresh

    def _retell(self, checkpoint: Checkpoint) -> None:
        """Tell what was committed in the open window before this session; it has been counted."""
        self._is_retold = True
        self._take_in(checkpoint.commit(self.target.limits.max_ahead_tokens))
        self.builder.statistics = SpeculationStatistics()

    def checkpoint(self) -> Checkpoint | None:
        """Tell where another session would go on with the recording; ``None`` where it would begin anew."""
        return self._progress.checkpoint() if self._is_retold else self._checkpoint

    def _propose_foretold(self, remote: TargetStream, window: Window) -> None:
        """Propose what was written of a window before; the draft, which hears it only now, comes later."""
        if self._foretold is None:
            return
        for block in self._foretold.candidates(window, self.target.vocabulary, remote.limits):
            remote.propose(block)
            self.builder.observe(block)

    async def _send_audio(self, remote: TargetStream, audio: AsyncIterator[bytes]) -> None:
        """Give draft and target the audio, no further ahead of the open window than the target allows."""
        async for pcm in audio:
            for start in range(0, len(pcm), PIECE_BYTES):
                await self._send_piece(remote, pcm[start : start + PIECE_BYTES])
        if not self.builder.num_samples:
            raise InvalidAudio("The recording is empty: it holds no audio samples.")
        await self._send_piece(remote, b"", is_last=True)

    async def _send_piece(self, remote: TargetStream, pcm: bytes, *, is_last: bool = False) -> None:
        marks = () if self._voice is None else await self._voice.hear(pcm)
        chunk = AudioChunk(self.builder.num_samples, pcm, is_last, marks)
        end_sample = self.builder.num_samples + len(pcm) // BYTES_PER_SAMPLE
        while end_sample - self._foresight.needed_from > remote.limits.max_ahead_samples:
            self._has_moved_on.clear()
            await self._has_moved_on.wait()
        self._foresight.hear(chunk, end_sample)
        if isinstance(self.builder, LiveTranscript):
            before = self.builder.position.start_sample
            self.builder.pass_over(self._foresight.needed_from)
            if self.builder.position.start_sample // TELL_SAMPLES > before // TELL_SAMPLES:
                self._changes.note()  # whoever keeps the audio need not keep silence
        self._note_speech(marks)
        self.builder.num_samples = end_sample
        self._has_all_audio = is_last
        self._tell_draft(chunk)  # before the target, whose windows it must be able to hear
        await remote.send_audio(chunk)

    def _note_speech(self, marks: Sequence[VoiceMark]) -> None:
        """Tell of utterances that begin or end; pauses are nobody's news."""
        for mark in marks:
            begins, ends = mark.event is VoiceEvent.BEGIN, mark.event is VoiceEvent.END
            if ends or (begins and not self._is_speech):
                self._is_speech = begins
                self.speech_events.append(mark)
                self._changes.note(is_pressing=True)
