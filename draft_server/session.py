"""One client's transcription: its audio goes to draft and target, what they say becomes text."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from draft_server.drafting import Drafting
from draft_server.link import TargetLink, TargetSession
from specwhisper.errors import InvalidAudio
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import (
    AudioChunk,
    Commit,
    DecodingOptions,
    Failed,
    FromTarget,
    Segment,
    WindowOpened,
)
from specwhisper.whisper.drafter import Drafted, Drafter

logger = logging.getLogger(__name__)

PIECE_BYTES = 16 * 1024  # half a second: small, so that candidates never wait behind audio for long


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What a client asks for."""

    options: DecodingOptions
    length: DraftLength


class Session:
    """Runs one transcription.

    Attributes
    ----------
    builder : the transcript so far.
    received_samples : audio taken in so far.
    """

    def __init__(self, request: SessionRequest, link: TargetLink, drafting: Drafting | None) -> None:
        self.id = secrets.token_hex(8)
        self.received_samples = 0
        self.builder: TranscriptBuilder
        self._request = request
        self._link = link
        self._drafting = drafting if request.length.mode.drafts else None
        self._drafter: Drafter | None = None
        self._fresh: list[Segment] = []
        self._changed = asyncio.Event()
        self._window_start_sample = 0
        self._window_opened = asyncio.Event()

    async def run(self, audio: AsyncIterator[bytes]) -> AsyncGenerator[list[Segment]]:
        """Transcribe canonical PCM; give the segments that became final whenever anything has changed."""
        description = await self._link.describe()
        self.builder = TranscriptBuilder(description.vocabulary)
        if self._drafting is not None:
            self._drafter = await self._drafting.drafter_for(description)
        draft_model = self._drafting.checkpoint.name if self._drafting else ""
        mode, options = self._request.length.mode, self._request.options
        log = {"session": self.id, "mode": mode.value}
        async with self._link.open(self.id, mode, options, draft_model=draft_model) as (target, events):
            logger.info("session opened", extra=log)
            tasks = [
                asyncio.create_task(coroutine)
                for coroutine in (
                    self._follow(target, events),
                    self._send_audio(target, audio),
                    target.beat(),
                )
            ]
            follow, send_audio, _ = tasks
            for task in (follow, send_audio):
                task.add_done_callback(lambda _: self._changed.set())
            try:
                await self._start_drafting(target)
                while not follow.done():
                    if send_audio.done():
                        send_audio.result()
                    yield await self._next_change(target)
                follow.result()
                if self._fresh:
                    yield await self._next_change(target)
            finally:
                await self._stop_drafting()
                for task in tasks:
                    task.cancel()
                    with suppress(asyncio.CancelledError, Exception):
                        await task
                logger.info("session closed", extra=log)

    async def _next_change(self, target: TargetSession) -> list[Segment]:
        """Wait for something new; what happens while the client reads is told at once afterwards."""
        if not self._fresh:
            await self._changed.wait()
        self._changed.clear()
        self.builder.statistics.min_round_trip_ns = target.min_round_trip_ns
        fresh, self._fresh = self._fresh, []
        return fresh

    async def _start_drafting(self, target: TargetSession) -> None:
        drafter, drafting = self._drafter, self._drafting
        if drafter is None or drafting is None:
            return
        drafting.thread.subscribe(self.id, lambda event: self._on_drafted(target, event))
        request, max_ahead_tokens = self._request, target.limits.max_ahead_tokens
        await drafting.thread.call(
            lambda: drafter.open(self.id, request.length, request.options, max_ahead_tokens=max_ahead_tokens)
        )

    async def _stop_drafting(self) -> None:
        drafter, drafting = self._drafter, self._drafting
        if drafter is not None and drafting is not None:
            drafting.thread.unsubscribe(self.id)
            drafting.thread.post(lambda: drafter.close(self.id))

    def _tell_draft(self, message: AudioChunk | WindowOpened | Commit) -> None:
        drafter, drafting = self._drafter, self._drafting
        if drafter is not None and drafting is not None:
            drafting.thread.post(lambda: drafter.submit(self.id, message))

    def _on_drafted(self, target: TargetSession, event: Drafted | Failed) -> None:
        """Pass a block on to the target; called in the event loop."""
        if isinstance(event, Drafted):
            target.send(event.candidates)
            self.builder.observe(event.candidates)
            self.builder.statistics.draft_ns += event.forward_ns
            self._changed.set()
        else:
            logger.error("draft failed", extra={"session": self.id, "error": str(event.error)})

    async def _follow(self, target: TargetSession, events: AsyncIterator[FromTarget]) -> None:
        """Take in what the target says, until it has finished."""
        async for event in events:
            if not isinstance(event, WindowOpened | Commit):
                return
            self._tell_draft(event)
            if isinstance(event, WindowOpened):
                self._window_start_sample = event.window.start_sample
                self._window_opened.set()
            self._fresh += self.builder.observe(event)
            self._changed.set()

    async def _send_audio(self, target: TargetSession, audio: AsyncIterator[bytes]) -> None:
        """Give draft and target the audio, no further ahead of the open window than the target allows."""
        async for pcm in audio:
            for start in range(0, len(pcm), PIECE_BYTES):
                piece = pcm[start : start + PIECE_BYTES]
                await self._wait_for_room(target, self.received_samples + len(piece) // 2)
                chunk = AudioChunk(self.received_samples, piece)
                self.received_samples += len(piece) // 2
                self._tell_draft(chunk)
                target.send(chunk)
                await target.outbox.wait_sent()
        if not self.received_samples:
            raise InvalidAudio("The recording is empty: it holds no audio samples.")
        end = AudioChunk(self.received_samples, b"", is_last=True)
        self._tell_draft(end)
        target.send(end)

    async def _wait_for_room(self, target: TargetSession, end_sample: int) -> None:
        while end_sample - self._window_start_sample > target.limits.max_ahead_samples:
            self._window_opened.clear()
            await self._window_opened.wait()
