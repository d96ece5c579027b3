"""A target in this process: the engine in its thread, and its sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any

from specwhisper.engine.engine_thread import EngineThread
from specwhisper.engine.verifier import Verifier
from specwhisper.engine.watchdog import HANGS_AFTER_S, TimedExecutor, watch
from specwhisper.errors import PairMismatch, TargetUnavailable
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.faults import leave_process
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.transcription.windows import TokenLimit
from specwhisper.types import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_WIDTH,
    AudioChunk,
    Candidates,
    Commit,
    Failed,
    Finished,
    FromTarget,
    HintText,
    Limits,
    Mode,
    Resume,
    ToTarget,
    WindowOpened,
)

logger = logging.getLogger(__name__)


class TargetEngine:
    """A verifier in a thread, and executors that encode and align beside it.

    Create it in the event loop that receives its events.

    Parameters
    ----------
    observe : called with the events of each step, in that loop.
    """

    def __init__(
        self,
        model: Model,
        *,
        limits: Limits,
        max_width: int = DEFAULT_MAX_WIDTH,
        max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS,
        latency_budget_ms: float | None = None,
        max_new_tokens: TokenLimit | None = None,
        observe: Callable[[Sequence[tuple[str, FromTarget]]], None] = lambda _: None,
    ) -> None:
        self.thread = EngineThread[FromTarget]("verifier", leave_process, observe)
        self._encoder = TimedExecutor("encoder", model.max_windows)
        self._aligner = TimedExecutor("aligner")
        self.verifier = Verifier(
            model,
            executor=self._encoder,
            aligner=self._aligner,
            wake=self.thread.wake,
            has_batching_delay=True,
            limits=limits,
            max_width=max_width,
            max_num_batched_tokens=max_num_batched_tokens,
            latency_budget_ms=latency_budget_ms,
            max_new_tokens=max_new_tokens,
        )
        self.thread.start(self.verifier)
        self._hangs = False
        self._watching = asyncio.create_task(
            watch(self._busy_s, HANGS_AFTER_S, self._note_hanging, self._note_return)
        )

    async def check_health(self) -> None:
        """Return when the engine has run all earlier actions.

        If the engine's thread hangs, this hangs too.

        Raises
        ------
        TargetUnavailable
            if an executor hangs.
        """
        self._check_hanging()
        await self.thread.call(lambda: None)

    async def check_room(self) -> int:
        """Return how many sessions can still be opened, after all earlier actions.

        Raises
        ------
        ServerFull
            if none can be opened now.
        TargetUnavailable
            while the engine hangs.
        """
        self._check_hanging()
        return await self.thread.call(self.verifier.check_room)

    @asynccontextmanager
    async def session(
        self,
        session_id: str,
        mode: Mode,
        options: DecodingOptions,
        events: asyncio.Queue[Any] | None = None,
    ) -> AsyncIterator[asyncio.Queue[Any]]:
        """Open a session, whose events are put into the queue.

        Raises
        ------
        InvalidRequest
            if an open session has that id.
        TargetUnavailable
            while the engine hangs.
        """
        self._check_hanging()
        events = asyncio.Queue() if events is None else events
        self.thread.subscribe(session_id, events.put_nowait)
        try:
            await self.thread.call(lambda: self.verifier.open(session_id, mode, options))
            yield events
        finally:  # also when the caller leaves while the session is being opened
            self.thread.unsubscribe(session_id)
            self.thread.post(lambda: self.verifier.close(session_id))

    def _busy_s(self) -> float:
        return max(each.busy.seconds for each in (self.thread, self._encoder, self._aligner))

    def _check_hanging(self) -> None:
        if self._hangs:
            raise _hanging()

    def _note_hanging(self) -> None:
        """End all sessions of an engine that hangs: they resume at another target."""
        self._hangs = True
        error = _hanging()
        logger.error("engine hangs", extra={"error": str(error)})
        self.thread.fail_sessions(error)

    def _note_return(self) -> None:
        self._hangs = False

    async def stop(self) -> None:
        """End the thread and the executors."""
        self._watching.cancel()
        await self.thread.stop()
        self._encoder.shutdown(cancel_futures=True)
        self._aligner.shutdown(cancel_futures=True)


def _hanging() -> TargetUnavailable:
    return TargetUnavailable(f"The target's engine has not answered for {HANGS_AFTER_S:g} s.")


class LocalTargetStream:
    """A session's stream to a target in this process; see :class:`TargetStream`."""

    min_round_trip_ns = 0

    def __init__(
        self,
        session_id: str,
        target: TargetDescription,
        engine: TargetEngine,
        events: asyncio.Queue[Any],
        note: Callable[[ToTarget], None],
    ) -> None:
        self.target = target
        self._note = note
        self.limits = engine.verifier.limits
        self._id = session_id
        self._engine = engine
        self._events = events

    def propose(self, block: Candidates) -> None:
        """Send candidates."""
        self._note(block)
        self._engine.thread.post(partial(self._engine.verifier.submit, self._id, block, perf_counter_ns()))

    def hint(self, hint: HintText) -> None:
        """Send a text that the audio is believed to say."""
        self._note(hint)
        self._engine.thread.post(partial(self._engine.verifier.submit, self._id, hint))

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Send audio and wait until the engine has it."""
        self._note(chunk)
        await self._engine.thread.call(partial(self._engine.verifier.submit, self._id, chunk))

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Yield the target's events until the transcript is complete."""
        while not isinstance(event := await self._events.get(), Finished):
            if isinstance(event, Failed):
                raise event.error
            yield event


class LocalTranscriber:
    """A target in this process; see :class:`Transcriber`.

    Parameters
    ----------
    note : called with each message to the target.
    """

    address = "in this process"

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine: TargetEngine,
        note: Callable[[ToTarget], None] = lambda message: None,
    ) -> None:
        self._checkpoint = checkpoint
        self._engine = engine
        self._note = note

    def known(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription | None:
        """Return ``None``: :meth:`describe` needs no round trip."""
        return None

    async def describe(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription:
        """Return the target's description, which never changes."""
        if (reason := unusable.get(self._checkpoint.vocabulary.digest)) is not None:
            raise PairMismatch(reason)
        return TargetDescription(
            model=self._checkpoint.name,
            weights_digest=self._checkpoint.weights_digest,
            vocabulary=self._checkpoint.vocabulary,
            num_mel_bins=self._checkpoint.num_mel_bins,
            limits=self._engine.verifier.limits,
        )

    @asynccontextmanager
    async def open(
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
    ) -> AsyncIterator[LocalTargetStream]:
        """Open a session on the target."""
        async with self._engine.session(session_id, mode, options) as events:
            if resume is not None:
                self._engine.thread.post(partial(self._engine.verifier.submit, session_id, resume))
            yield LocalTargetStream(session_id, target, self._engine, events, self._note)

    async def find_room(
        self, target: TargetDescription | None = None, *, same_weights: bool = False, avoid: str = ""
    ) -> LocalTranscriber:
        """Return this target; raise :class:`ServerFull` if it has no room."""
        await self._engine.check_room()
        return self

    async def check_health(self) -> None:
        """Check the engine; see :meth:`TargetEngine.check_health`."""
        await self._engine.check_health()

    async def close(self) -> None:
        """End the engine."""
        await self._engine.stop()
