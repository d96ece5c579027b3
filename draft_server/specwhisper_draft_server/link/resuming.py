"""Continuation of a session on another target when its target is lost.

The caller notices only a time in which nothing is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    suppress,
)
from math import inf
from time import monotonic
from typing import Any, Self

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.kept import MAX_UNREAD_S, KeptAudio
from specwhisper.errors import (
    GONE,
    RETRY_ELSEWHERE,
    PairMismatch,
    ServerDraining,
    ServerFull,
    SlowReader,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.live import LivePosition
from specwhisper.observe.tracing import note_event
from specwhisper.rpc.failover import Failover
from specwhisper.tasks import running
from specwhisper.types import (
    AudioChunk,
    Commit,
    ConfirmEvery,
    EndUtterance,
    WindowOpened,
)
from specwhisper_draft_server.link.progress import KeptMarks, Progress, SessionHints
from specwhisper_draft_server.link.targets import Pace
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.transcriber import TargetDescription, TargetStream

logger = logging.getLogger(__name__)

CHECK_S = 1.0  # between two checks of a session's pace
MAX_OUTAGE_S = 900.0  # for sessions that wait long
LOST = (*GONE, SlowReader)  # SlowReader: this server was stopped for a while; only open sessions end so
REFUSED = (ServerFull, PairMismatch)  # all targets were asked, and none that answered takes it


# Opens a stream on one target, as :meth:`Transcriber.open` does.
OpenOnce = Callable[..., AbstractAsyncContextManager[TargetStream]]
Opened = tuple[AsyncExitStack, TargetStream]


class ResumingTargetStream:
    """The stream of one session, on one target after another.

    Use it as a context manager. Entering it looks for a target, and fails at once if all targets answer and
    refuse the session. A session with ``waits_long`` may be open without a target. If a target drains, or is
    much slower than another one, the session leaves it once another one has taken the session.

    Parameters
    ----------
    target : the expected target; once the stream is open, the one that runs it. Others have its weights.
    progress : where another target continues.
    hints : texts that the audio probably contains; each target is sent those that it may need.
    resume_timeout_s : how long to look for a target after a loss, until the session fails. The limit restarts
        only when a target has committed something.
    waits_long : whether it looks for up to :data:`MAX_OUTAGE_S` while audio may come, and keeps as much
        audio.
    same_weights : whether the first target, too, must have the weights of ``target``.
    on_change : called when a target is lost, or has taken the session again.

    Attributes
    ----------
    current : the stream on the target that has the session, for candidates: those that no target takes are
        answered once one has opened their window. ``None`` between two targets.
    """

    def __init__(
        self,
        session_id: str,
        open_once: OpenOnce,
        target: TargetDescription,
        progress: Progress,
        hints: SessionHints,
        resume_timeout_s: float,
        metrics: DraftMetrics,
        *,
        waits_long: bool = False,
        same_weights: bool = False,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.target = target
        self._same_weights = same_weights
        self._metrics = metrics
        self._id = session_id
        self._open_once = open_once
        self._progress = progress
        self._waits_long = waits_long
        self._lost: SpecWhisperError | None = None  # no target was found yet
        self._on_change = on_change
        self._clock = clock
        self._audio = KeptAudio(progress.audio_from, MAX_UNREAD_S)
        self._marks = KeptMarks()
        self._has_progressed = asyncio.Event()
        self._hints = hints
        self._confirm_every: ConfirmEvery | None = None  # if it differs from the options
        self.current: TargetStream | None = None
        self._current_tasks = AsyncExitStack()  # closes the current stream and ends its tasks
        self._next: Opened | None = None  # the stream to continue on, once the current one has ended
        self._failover = Failover(resume_timeout_s, clock=clock)
        self._pace = Pace()
        self._min_round_trip_ns = 0
        self._feed_error: Exception | None = None  # an error that another target would not solve

    async def __aenter__(self) -> Self:
        await self._connect_first()
        self._metrics.kept_audio.add(self._audio)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._metrics.kept_audio.discard(self._audio)
        try:
            await self._close_current()
        finally:
            if self._next is not None:
                await self._next[0].aclose()

    @property
    def min_round_trip_ns(self) -> int:
        if self.current is not None:
            self._min_round_trip_ns = self.current.min_round_trip_ns
        return self._min_round_trip_ns

    def confirm_every(self, message: ConfirmEvery) -> None:
        """Set how often the target decodes a growing live piece; later targets follow it too."""
        self._confirm_every = message
        if self.current is not None:
            self.current.send(message)

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Keep audio for every target that needs it; wait while much of it is unsent."""
        end_sample = chunk.start_sample + len(chunk.pcm) // BYTES_PER_SAMPLE
        self._marks.put(end_sample, chunk.marks)
        self._note_progress()
        if chunk.marks and not chunk.pcm:
            self._audio.end_utterance()  # the marks are sent now
        await self._audio.put(chunk.pcm)
        if chunk.is_last:
            self._audio.finish()

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        if self._lost is not None:
            await self._recover(self._lost)
        while self.current is not None:
            try:
                async for event in self.current.events():
                    if isinstance(event, Commit):
                        self._pace.observe(event.timing)
                    for fresh in self._progress.observe(event):
                        if isinstance(fresh, Commit) and self._progress.advances(fresh):
                            self._failover.progressed()
                        yield fresh
                    if (block := self._progress.pop_pending_block()) is not None:
                        self.current.send(block)
                    self._note_progress()
                return
            except LOST as error:
                if self._feed_error is not None:
                    raise self._feed_error from None
                await self._continue_elsewhere(self.current.address, error)

    def _note_progress(self) -> None:
        self._audio.forget_before(self._progress.audio_from)
        self._audio.forget_ends_before(self._progress.audio_from)
        self._marks.forget_before(self._progress.needed_from)
        self._has_progressed.set()

    async def _continue_elsewhere(self, lost: str, error: SpecWhisperError) -> None:
        self._failover.lost()
        note_event("target lost", target=lost, error=type(error).__name__)
        logger.warning("target lost", extra={"session": self._id, "target": lost, "error": str(error)})
        with self._metrics.resuming(error):
            await self._close_current()
            if self._next is not None:
                opened, self._next = self._next, None
                await self._run_on(*opened)
            else:
                await self._recover(error, avoid=lost)

    async def _recover(self, error: SpecWhisperError, avoid: str = "") -> None:
        if self._waits_long:
            self._audio.allow_unread(MAX_OUTAGE_S)
        self._on_change()
        await self._connect(error, avoid)
        self._on_change()

    async def _connect_first(self) -> None:
        """Open the first stream; a refusal by all targets is raised at once."""
        try:
            await self._run_on(*await self._open())
        except LOST as loss:
            logger.warning("target lost while it opened", extra={"session": self._id, "error": str(loss)})
            if self._waits_long:
                self._lost, self._same_weights = loss, True  # the client knows the expected target
            else:
                await self._connect(loss)

    async def _connect(self, error: SpecWhisperError, avoid: str = "") -> None:
        """Open a stream on a target after an error; retry within the time limit.

        ``avoid``: address of a target that is used only if no other one takes the session.
        """
        lost_s = self._clock()
        try:
            while self.current is None:
                waits_long = self._waits_long and not self._audio.is_complete
                if waits_long and self._clock() - lost_s > MAX_OUTAGE_S:
                    raise TargetUnavailable(
                        f"No target has taken the session for {MAX_OUTAGE_S:g} s: {error}"
                    ) from None
                await self._failover.wait(error, is_limited=not waits_long)
                try:
                    await self._run_on(*await self._open(avoid))
                except (*LOST, *REFUSED) as another:
                    error = another
        finally:
            del error  # breaks the cycle of the error and this frame

    async def _open(self, avoid: str = "", within_s: float | None = None) -> Opened:
        async with AsyncExitStack() as stack:
            opening = self._open_once(
                self.target, same_weights=self._same_weights, avoid=avoid, within_s=within_s
            )
            stream = await stack.enter_async_context(opening)
            # From here on there is text of these weights.
            self.target, self._same_weights = stream.target, True
            return stack.pop_all(), stream

    async def _run_on(self, stack: AsyncExitStack, stream: TargetStream) -> None:
        resume = self._progress.migrate()
        if isinstance(resume, LivePosition):
            self._marks.forget_before(resume.next_sample)
        # From here on nothing that it needs is forgotten, whatever arrives before the first piece is sent.
        self._marks.restart()
        audio_from = self._progress.audio_from
        pieces = self._audio.pieces(audio_from, lambda: stream.piece_bytes)
        self._audio.allow_unread(MAX_UNREAD_S)
        if resume not in (None, LivePosition()):
            stream.send(resume)
        if self._confirm_every is not None:
            stream.send(self._confirm_every)
        self._failover.connected()
        self._pace.begin(monotonic())
        self._current_tasks, self.current = stack, stream
        start_sample = self._progress.needed_from
        await stack.enter_async_context(running(self._hints.send(stream.send, start_sample)))
        await stack.enter_async_context(running(self._feed(stream, audio_from, pieces)))
        await stack.enter_async_context(running(self._migrate(stream)))

    async def _migrate(self, stream: TargetStream) -> None:
        log = {"session": self._id, "target": stream.address}
        while not stream.going_away.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await stream.going_away.wait()
            if not stream.going_away.is_set() and self._pace.asks_others(monotonic()):
                with suppress(SpecWhisperError):  # the session stays, and asks again later
                    self._next = await self._open(stream.address, self._pace.worth_a_move_s)
                    answer_s = round(self._pace.answer_s, 3)
                    logger.warning("slow target left", extra=log | {"answer_s": answer_s})
                    break
        else:
            self._next = await self._open_at_once(stream.address, log)
        stream.leave()

    async def _open_at_once(self, left: str, log: dict[str, str]) -> Opened:
        """Open a stream as soon as another target takes it, for as long as the old one serves the session.

        All sessions of a draining target migrate at once, so even the first attempt follows a random delay.
        """
        failover, is_logged = Failover(inf), False
        error: SpecWhisperError = ServerDraining(f"Target {left} is stopping.")
        while True:
            await failover.wait(error)
            try:
                return await self._open(left)
            except SpecWhisperError as refusal:
                error = refusal
                if not (is_logged or isinstance(refusal, RETRY_ELSEWHERE)):
                    is_logged = True
                    reason = f"{type(refusal).__name__}: {refusal}"
                    logger.warning("cannot migrate", extra=log | {"error": reason})
            except Exception:
                logger.exception("cannot migrate", extra=log)
                raise

    async def _close_current(self) -> None:
        self._min_round_trip_ns, self.current = self.min_round_trip_ns, None
        await self._current_tasks.aclose()

    async def _feed(self, stream: TargetStream, *kept: Any) -> None:
        """Send a target the audio that it needs; an error there ends the session."""
        try:
            await self._send_kept(stream, *kept)
        except Exception as error:  # otherwise the target would wait for audio
            self._feed_error = error
            stream.leave()

    async def _send_kept(
        self, stream: TargetStream, sample: int, pieces: AsyncGenerator[bytes | EndUtterance]
    ) -> None:
        """Send the kept audio from a sample on, and then new audio as it arrives.

        The audio is never further ahead than the target allows.
        """
        async with aclosing(pieces):
            async for piece in pieces:
                pcm = b"" if isinstance(piece, EndUtterance) else piece  # a mark has its end
                end_sample = sample + len(pcm) // BYTES_PER_SAMPLE
                while end_sample - self._progress.needed_from > stream.limits.max_ahead_samples:
                    self._has_progressed.clear()
                    await self._has_progressed.wait()
                await stream.send_audio(AudioChunk(sample, pcm, marks=self._marks.take(end_sample)))
                sample = end_sample
        await stream.send_audio(AudioChunk(sample, b"", is_last=True, marks=self._marks.take(sample)))
