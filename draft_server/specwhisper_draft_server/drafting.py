"""Run the draft model in its own thread, for all sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial

from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.engine_thread import EndingPool, EngineThread
from specwhisper.engine.process import leave_process
from specwhisper.engine.watchdog import ENDS_WITHIN_S, Watchdog
from specwhisper.errors import DeviceFault, PairMismatch, ServerDraining
from specwhisper.model.backend import is_device_fault
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.types import AudioChunk, Candidates, Commit, Failed, Mode, WindowOpened
from specwhisper_draft_server.draft_source import DraftNotPlaced
from specwhisper_draft_server.transcriber import Requirements, TargetDescription

logger = logging.getLogger(__name__)

REPORT_S = 1.0  # to wait for a session's last figures, for which its transcript waits
RETRY_PLACE_S = 60.0  # after a failure to place the model: memory may be free by then

# Places the draft model, set up for a target's vocabulary.
PlaceDraft = Callable[[TargetDescription], Model]


class DraftStream:
    """The draft of one session.

    It takes audio and the target's events, and proposes blocks. If the draft fails, the session continues
    without it. Then a target that waits for candidates gets an empty block at every position.

    Attributes
    ----------
    drafter : the engine, once it runs.
    has_failed : whether it has stopped proposing.
    """

    def __init__(
        self,
        session_id: str,
        thread: EngineThread[Drafted | Failed],
        mode: Mode,
        on_drafted: Callable[[Drafted], None],
        on_failure: Callable[[], None],
    ) -> None:
        self.drafter: Drafter | None = None
        self.has_failed = False
        self._on_failure = on_failure
        self._id = session_id
        self._thread = thread
        self._mode = mode
        self._on_drafted = on_drafted
        self._last: WindowOpened | Commit | None = None

    def send(self, message: AudioChunk | WindowOpened | Commit) -> None:
        if not isinstance(message, AudioChunk):
            self._last = message
        if self.drafter is not None and not self.has_failed:
            self._thread.post(partial(self.drafter.submit, self._id, message))
        elif not isinstance(message, AudioChunk):
            self._send_empty_block()

    def receive(self, event: Drafted | Failed) -> None:
        if self.has_failed:
            return
        if isinstance(event, Drafted):
            self._on_drafted(event)
        else:
            logger.error("draft failed", extra={"session": self._id}, exc_info=event.error)
            self.has_failed = True
            self._on_failure()
            self.close()
            self._on_drafted(Drafted(None, DraftReport(note="the draft has failed")))
            self._send_empty_block()

    def close(self) -> None:
        if self.drafter is not None:
            self._thread.post(partial(self.drafter.close, self._id))

    async def last_report(self) -> DraftReport:
        """Return the figures since the last block.

        They are empty if the engine does not answer in time.
        """
        if self.drafter is None or self.has_failed:
            return DraftReport()
        try:
            async with asyncio.timeout(REPORT_S):
                return await self._thread.call(partial(self.drafter.report, self._id))
        except (ServerDraining, TimeoutError):  # the transcript must not wait longer for figures
            return DraftReport()

    def _send_empty_block(self) -> None:
        """Let a target that waits for candidates decode one token by itself."""
        if self._mode.self_decodes:
            return
        match self._last:
            case WindowOpened(window=window):
                self._on_drafted(Drafted(Candidates(window.id, 0, 0, ())))
            case Commit(is_final=False) as commit:
                end = commit.base + len(commit.tokens)
                self._on_drafted(Drafted(Candidates(commit.window_id, end, end, ())))


class Drafting:
    """One draft model for all sessions, and a watch over its engine.

    ``placement`` decides which targets it drafts for.

    Parameters
    ----------
    timeout_s : time in which the engine must place the model, open a session, or finish a step or an
        encoding. After that it counts as hanging: sessions run without drafts until it answers.
    on_failure : called when a session's draft fails.

    Attributes
    ----------
    name, num_mel_bins : the draft model's.
    watchdog : notices if the engine exceeds ``timeout_s``.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        place: PlaceDraft,
        *,
        timeout_s: float = 15.0,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_failure = on_failure
        self.name = checkpoint.name
        self.num_mel_bins = checkpoint.num_mel_bins
        self._timeout_s = timeout_s
        self._thread = EngineThread[Drafted | Failed]("drafter", leave_process)
        self._encoder = EndingPool("draft-encoder")
        self.placement = Placement(self.name, place, self._encoder, self._start_engine)
        self.watchdog = Watchdog(
            self._busy_s,
            timeout_s,
            self._timeout,
            on_hang=self._fail_sessions,
            on_return=lambda: logger.info("draft engine answers again"),
        )

    def check_mode(self, mode: Mode) -> None:
        """Accept it: a Whisper model drafts in all modes."""

    @asynccontextmanager
    async def session(
        self,
        session_id: str,
        target: TargetDescription,
        length: DraftLength,
        options: DecodingOptions,
        *,
        receive: Callable[[Drafted], None],
    ) -> AsyncIterator[DraftStream]:
        """Open a session.

        ``receive`` is called with its blocks and reports, in the event loop. If the engine does not answer in
        time, or has no model, the stream has failed from the start.
        """
        session = DraftStream(session_id, self._thread, length.mode, receive, self._on_failure)
        self._thread.subscribe(session_id, session.receive)
        try:
            try:
                await self._open_in_time(session, session_id, target, length, options)
            except (TimeoutError, DraftNotPlaced) as error:
                session.receive(Failed(error))
            yield session
        finally:  # even if the client cancels while the session opens
            self._thread.unsubscribe(session_id)
            session.close()

    async def _open_in_time(
        self,
        session: DraftStream,
        session_id: str,
        target: TargetDescription,
        length: DraftLength,
        options: DecodingOptions,
    ) -> None:
        self.watchdog.check()
        try:
            async with asyncio.timeout(self._timeout_s):
                self.watchdog.start()
                session.drafter = drafter = await self.placement.done_for(target)
                most = target.limits.max_ahead_tokens
                await self._thread.call(
                    lambda: drafter.open(session_id, length, options, max_ahead_tokens=most)
                )
        except TimeoutError:
            raise self._timeout() from None

    async def stop(self) -> None:
        self.placement.cancel()
        self.watchdog.stop()
        await self._thread.stop()
        try:
            await self._encoder.end()
        except TimeoutError:
            error = (
                f"The draft engine has not ended within {ENDS_WITHIN_S:g} s: it still encodes or is placed."
            )
            leave_process(DeviceFault(error))

    def _timeout(self) -> TimeoutError:
        return TimeoutError(f"The draft engine has not answered within {self._timeout_s:g} s.")

    def _start_engine(self, model: Model, target: TargetDescription) -> Drafter:
        logger.info("paired", extra={"draft": self.name, "target": target.model})
        drafter = Drafter(model, executor=self._encoder, wake=self._thread.wake)
        self._thread.start(drafter)
        return drafter

    def _busy_s(self) -> float:
        return max(self._thread.busy.seconds, self._encoder.busy.seconds)

    def _fail_sessions(self) -> None:
        error = self._timeout()
        logger.error("draft engine hangs", extra={"error": str(error)})
        self._thread.fail_sessions(error)


class Placement:
    """Places a draft model for the vocabulary of the first target.

    Parameters
    ----------
    name : the draft model's, for messages.
    place : places the model; it runs in ``executor``. After a failure it is tried again every
        :data:`RETRY_PLACE_S`.
    start : called once with the model; returns the engine that runs it.

    Attributes
    ----------
    drafter : the engine, once the model is placed.
    """

    def __init__(
        self,
        name: str,
        place: PlaceDraft,
        executor: Executor,
        start: Callable[[Model, TargetDescription], Drafter],
    ) -> None:
        self._name = name
        self._place = place
        self._executor = executor
        self._start = start
        self._vocabulary_digest = ""  # the first target's, once there is one
        self._task: asyncio.Task[None] | None = None
        self._was_tried = asyncio.Event()
        self._failure = ""  # why the last attempt failed
        self.drafter: Drafter | None = None

    def choose(self, target: TargetDescription) -> bool:
        """Return whether the draft uses a target's vocabulary.

        The first target's vocabulary is chosen. That starts a task that places the model, which all sessions
        await. The task continues if the client that started it cancels.
        """
        if not self._vocabulary_digest:
            self._vocabulary_digest = target.vocabulary.digest
            self._task = asyncio.create_task(self._place_for(target))
        return target.vocabulary.digest == self._vocabulary_digest

    async def done_for(self, target: TargetDescription) -> Drafter:
        """Return the engine after the first attempt.

        Raises
        ------
        PairMismatch : if the model drafts for another vocabulary.
        DraftNotPlaced : if no attempt has succeeded.
        """
        if not self.choose(target):
            raise PairMismatch(self.why_not(target))
        await self._was_tried.wait()
        if self.drafter is None:
            raise DraftNotPlaced(f"The draft model could not be placed: {self._failure}")
        return self.drafter

    def requirements(self, weights_digest: str = "") -> Requirements:
        """Return what a session with drafts requires of a target, as far as is known."""
        return Requirements(self._vocabulary_digest, weights_digest)

    def why_not(self, target: TargetDescription) -> str:
        return (
            f"Target '{target.model}' has another vocabulary than the one draft '{self._name}' was set up "
            "for: restart the draft server."
        )

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _place_for(self, target: TargetDescription) -> None:
        while (drafter := await self._attempt(target)) is None:
            self._was_tried.set()
            await asyncio.sleep(RETRY_PLACE_S)
        self.drafter = drafter
        self._was_tried.set()

    async def _attempt(self, target: TargetDescription) -> Drafter | None:
        """Place the model in the watched executor, and start its engine; return ``None`` if that fails."""
        try:
            model = await asyncio.get_running_loop().run_in_executor(self._executor, self._place, target)
            return self._start(model, target)
        except Exception as error:
            if is_device_fault(error):
                leave_process(DeviceFault(f"The draft's device has failed: {error}"))
            logger.exception("draft model not placed")
            self._failure = repr(error)  # the error itself would keep parts of the model in memory
            return None
