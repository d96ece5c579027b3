"""Recordings whose target is lost: another one goes on from the open window, and nobody hears of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, Protocol, Self

from specwhisper.audio.kept import KeptAudio
from specwhisper.audio.recording import CONTEXT_SAMPLES
from specwhisper.errors import GONE, PairMismatch, ServerFull, SlowReader, SpecWhisperError
from specwhisper.observe.tracing import note_event
from specwhisper.rpc.backoff import Backoff
from specwhisper.transcription.resumption import Resumption
from specwhisper.transcription.transcriber import TargetDescription, TargetStream
from specwhisper.types import AudioChunk, Candidates, Commit, Resume, WindowOpened
from specwhisper_draft_server.link.grpc_target_stream import PIECE_BYTES
from specwhisper_draft_server.link.migration import opened_elsewhere
from specwhisper_draft_server.metrics import DraftMetrics

logger = logging.getLogger(__name__)

LOST = (*GONE, SlowReader)  # the last where this server stood still for a while: only open sessions end so
REFUSED = (ServerFull, PairMismatch)  # by a target that is there: by every one, as each was asked


class SessionThere(TargetStream, Protocol):
    """A session on a target, which waits to hear where it begins.

    Attributes
    ----------
    address : of the target.
    going_away : set once the target has said that it stops.
    """

    address: str
    going_away: asyncio.Event

    def resume(self, resume: Resume) -> None:
        """Say where to go on; the first that is said, where it does not begin anew."""

    def leave(self) -> None:
        """End it as if it were lost: another target has taken the session."""


class OpenThere(Protocol):
    """Opens a session on a target, as :meth:`Transcriber.open` says."""

    def __call__(
        self, target: TargetDescription, *, same_weights: bool, avoid: str
    ) -> AbstractAsyncContextManager[SessionThere]:
        """Open a session: a place is certain then."""


Opened = tuple[AsyncExitStack, SessionThere]


class ResumingTargetStream:
    """One recording on one target after the other; see :class:`TargetStream`.

    A context manager around it. While it opens, it looks for a target as it does later, except that it fails
    at once where all targets are there and refuse it. A target that stops is left once another one has taken
    the session.

    Parameters
    ----------
    target : what the session was set up for; once it is open, what its target is. Others have its weights.
    patience_s : how long the session looks for a target, from the first loss on, until it fails. Only when a
        target has committed something is this time granted again: those that take the session and lose it,
        and do nothing else, use it up.
    resume : where it goes on; ``None`` starts afresh.
    same_weights : whether the first target has those of ``target``, as all others have those of the first.
    """

    def __init__(
        self,
        session_id: str,
        open_there: OpenThere,
        target: TargetDescription,
        patience_s: float,
        metrics: DraftMetrics,
        resume: Resume | None = None,
        *,
        same_weights: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.target = target
        self.limits = target.limits
        self._same_weights = same_weights
        self._clock = clock
        self._metrics = metrics
        self._id = session_id
        self._open_there = open_there
        self._patience_s = patience_s
        self._resumption = Resumption(target.limits.max_ahead_tokens, resume)
        self._audio = KeptAudio(self._needed_from)
        self._there = AsyncExitStack()
        self._session: SessionThere | None = None  # the one that runs
        self._taken_s = clock()  # when it was
        self._next: Opened | None = None  # the one that goes on as soon as that has ended
        self._backoff: Backoff | None = None  # since there was progress
        self._min_round_trip_ns = 0
        self._failure: Exception | None = None  # of ours, for which no other target could do anything

    async def __aenter__(self) -> Self:
        await self._connect()
        self._metrics.held.add(self._audio)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._metrics.held.discard(self._audio)
        try:
            await self._leave()
        finally:
            if self._next is not None:
                await self._next[0].aclose()

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
                    for news in self._resumption.observe(event):
                        if isinstance(news, Commit) and news.tokens:  # else it has not got any further
                            self._backoff = None
                        yield news
                    if (owed := self._resumption.take_owed()) is not None:
                        self._session.propose(owed)
                    self._audio.forget_before(self._needed_from)
                return
            except LOST as error:
                if self._failure is not None:
                    raise self._failure from None
                await self._go_on(self._session.address, error)

    async def _go_on(self, lost: str, error: SpecWhisperError) -> None:
        """Find another target, or the same once it is back."""
        lost_s = self._clock()
        note_event("target lost", target=lost, error=type(error).__name__)
        logger.warning("target lost", extra={"session": self._id, "target": lost, "error": str(error)})
        note_going_on = self._metrics.lost(error)
        await self._leave()
        if self._next is not None:
            (there, session), self._next = self._next, None
            await self._run_on(there, session)
            note_going_on()
            return
        if self._backoff is not None:  # nothing was committed since; but no target was looked for either
            self._backoff.put_off(lost_s - self._taken_s)
        await self._connect(avoid=lost, error=error)
        note_going_on()

    async def _connect(self, avoid: str = "", error: SpecWhisperError | None = None) -> None:
        """Open a session on a target, or wait and try again, for as long as there is patience.

        Parameters
        ----------
        avoid : address of a target that takes it only where no other does.
        error : the loss that it begins with; without one, it fails where all targets refuse it.
        """
        try:
            while self._session is None:
                if error is not None:
                    self._backoff = self._backoff or Backoff(self._patience_s, clock=self._clock)
                    await self._backoff.wait(error)
                try:
                    await self._run_on(*await self._open(avoid))
                except LOST as loss:
                    if error is None:
                        log = {"session": self._id, "error": str(loss)}
                        logger.warning("target lost while it opened", extra=log)
                    error = loss
                except REFUSED as refusal:
                    if error is None:
                        raise
                    error = refusal
        finally:
            error = None  # an error refers to this frame: they would keep each other, and all that is here

    async def _open(self, avoid: str) -> Opened:
        async with AsyncExitStack() as there:
            opening = self._open_there(self.target, same_weights=self._same_weights, avoid=avoid)
            session = await there.enter_async_context(opening)
            # From here on there is text of its weights.
            self.target, self._same_weights = session.target, True
            return there.pop_all(), session

    async def _run_on(self, there: AsyncExitStack, session: SessionThere) -> None:
        """Begin on a target that has taken the session, or go on there."""
        if (resume := self._resumption.resume()) is not None:
            session.resume(resume)
        self._resumption.move()
        self._there, self._session, self._taken_s = there, session, self._clock()
        self.limits = session.limits
        await there.enter_async_context(_beside(self._feed(session)))
        await there.enter_async_context(_beside(self._move(session)))

    async def _move(self, session: SessionThere) -> None:
        """Leave a target that stops, once another one has taken the session; until then it goes on here."""
        await session.going_away.wait()
        self._next = await opened_elsewhere(
            partial(self._open, session.address), session_id=self._id, target=session.address
        )
        session.leave()

    async def _leave(self) -> None:
        _, self._session = self.min_round_trip_ns, None
        await self._there.aclose()

    async def _feed(self, session: SessionThere) -> None:
        """Give a target the audio that it needs; where that fails, the session ends with its error."""
        try:
            await self._give_audio(session)
        except Exception as error:  # else it would wait for what nobody sends
            self._failure = error
            session.leave()

    async def _give_audio(self, session: SessionThere) -> None:
        """Give what is kept, and then what comes."""
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


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have something done meanwhile, for as long as it is wanted."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
