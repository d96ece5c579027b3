"""Recordings whose target is lost: another one goes on from the open window, and nobody hears of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from typing import Protocol, Self

from draft_server.metrics import DraftMetrics
from specwhisper.audio.kept import KeptAudio
from specwhisper.audio.recording import CONTEXT_SAMPLES
from specwhisper.errors import (
    ServerDraining,
    ServerFull,
    SlowReader,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.transcription.resumption import Resumption
from specwhisper.transcription.transcriber import TranscriberSession
from specwhisper.types import AudioChunk, Candidates, Commit, Limits, Resume, WindowOpened
from specwhisper.wire.backoff import Backoff
from specwhisper.wire.tracing import note_event

logger = logging.getLogger(__name__)

PIECE_BYTES = 16 * 1024  # half a second: small, so that candidates never wait behind audio for long
LOST = (TargetUnavailable, ServerDraining, SlowReader)  # the last by who stood still for a while


class SessionThere(TranscriberSession, Protocol):
    """A session on a target that has an address."""

    address: str


class OpenThere(Protocol):
    """Begins on a target, or goes on there; rather not at an address to ``avoid``."""

    def __call__(self, resume: Resume | None, avoid: str) -> AbstractAsyncContextManager[SessionThere]:
        """Open a session."""


class ResumedSession:
    """One recording on one target after the other; see :class:`TranscriberSession`.

    A context manager around it; where no target takes it from the first, its error is raised. One that is
    lost while it opens the session counts for nothing: if there is another one, that takes it.

    Parameters
    ----------
    limits : that every target has.
    patience_s : how long the session looks for another target, until it fails.
    resume : where it goes on; ``None`` begins anew.
    """

    def __init__(
        self,
        session_id: str,
        open_there: OpenThere,
        limits: Limits,
        patience_s: float,
        metrics: DraftMetrics,
        resume: Resume | None = None,
    ) -> None:
        self.limits = limits
        self._metrics = metrics
        self._id = session_id
        self._open_there = open_there
        self._patience_s = patience_s
        self._resumption = Resumption(limits.max_ahead_tokens, resume)
        self._audio = KeptAudio(self._needed_from)
        self._there = AsyncExitStack()
        self._session: SessionThere | None = None  # the one that runs
        self._backoff: Backoff | None = None  # since a target has said something
        self._min_round_trip_ns = 0

    async def __aenter__(self) -> Self:
        try:
            await self._connect(avoid="")
        except LOST as error:
            logger.warning("target lost while it opened", extra={"session": self._id, "error": str(error)})
            await self._connect(avoid="")  # it looks around again, so at once where nobody is there
        self._metrics.held.add(self._audio)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._metrics.held.discard(self._audio)
        await self._leave()

    @property
    def min_round_trip_ns(self) -> int:
        """The shortest round trip to the target that runs it, or ran it last."""
        if self._session is not None:
            self._min_round_trip_ns = self._session.min_round_trip_ns
        return self._min_round_trip_ns

    def propose(self, block: Candidates) -> None:
        """Send candidates; between two targets they are lost, which is no harm: the draft is told."""
        self._resumption.propose(block)
        if self._session is not None and self._resumption.is_known:
            self._session.propose(block)

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Keep audio, which goes to every target that needs it; wait while much is not sent."""
        await self._audio.put(chunk.pcm)
        if chunk.is_last:
            self._audio.finish()

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Give what one target after the other says, until the transcript is whole."""
        while self._session is not None:
            try:
                async for event in self._session.events():
                    if isinstance(event, Commit) and event.tokens:  # else it has not got any further
                        self._backoff = None
                    for news in self._resumption.observe(event):
                        yield news
                    if (owed := self._resumption.take_owed()) is not None:
                        self._session.propose(owed)
                    self._audio.forget_before(self._needed_from)
                return
            except LOST as error:
                await self._go_on(self._session.address, error)

    async def _go_on(self, lost: str, error: SpecWhisperError) -> None:
        """Find another target, or the same once it is back."""
        note_event("target lost", target=lost, error=type(error).__name__)
        logger.warning("target lost", extra={"session": self._id, "target": lost, "error": str(error)})
        note_going_on = self._metrics.lost(error)
        await self._leave()
        self._backoff = self._backoff or Backoff(self._patience_s)
        while self._session is None:
            await self._backoff.wait(error)
            try:
                await self._connect(avoid=lost)
            except (*LOST, ServerFull) as refusal:
                error = refusal
        note_going_on()

    async def _connect(self, avoid: str) -> None:
        async with AsyncExitStack() as there:
            session = await there.enter_async_context(self._open_there(self._resumption.resume(), avoid))
            self._resumption.move()
            await there.enter_async_context(self._feeding(session))
            self._there, self._session = there.pop_all(), session

    async def _leave(self) -> None:
        _, self._session = self.min_round_trip_ns, None
        await self._there.aclose()

    @asynccontextmanager
    async def _feeding(self, session: SessionThere) -> AsyncIterator[None]:
        feeding = asyncio.create_task(self._feed(session))
        try:
            yield
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _feed(self, session: SessionThere) -> None:
        """Give a target the audio that it needs: what is kept, and then what comes."""
        sample = self._needed_from
        async with aclosing(self._audio.pieces(sample, PIECE_BYTES)) as pieces:
            async for pcm in pieces:
                await session.send_audio(AudioChunk(sample, pcm))
                sample += len(pcm) // 2
        await session.send_audio(AudioChunk(sample, b"", is_last=True))

    @property
    def _needed_from(self) -> int:
        return audio_needed_from(self._resumption.needed_from)


def audio_needed_from(start_sample: int) -> int:
    """Tell where the audio begins that a window needs which begins at a sample."""
    return max(0, start_sample - CONTEXT_SAMPLES)
