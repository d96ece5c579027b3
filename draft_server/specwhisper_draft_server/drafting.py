"""Run the draft model in a thread of its own, for all sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from specwhisper.api.pairing import draft_ids
from specwhisper.engine.draft_state import Drafted
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.engine_thread import EngineThread
from specwhisper.engine.watchdog import ENDS_WITHIN_S, TimedExecutor, watch
from specwhisper.errors import DeviceFault, PairMismatch, ServerDraining
from specwhisper.model.checkpoint import Checkpoint
from specwhisper.model.faults import is_device_fault, leave_process
from specwhisper.model.model import Model, WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.speculation.controller import Choice
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import AudioChunk, Candidates, Commit, Failed, Mode, WindowOpened
from specwhisper_draft_server.link.needs import Needs

logger = logging.getLogger(__name__)

REPORT_S = 1.0  # for the last figures of a session; its transcript waits for them
RETRY_PLACE_S = 60.0  # after the model could not be placed: memory may be free by then

# Places the draft model, reordered to a target's vocabulary.
PlaceDraft = Callable[[TargetDescription], Model]
# Raises PairMismatch if a draft cannot use a target's vocabulary; quick, unlike placing the model.
CheckPair = Callable[[TargetDescription], object]


class Drafting:
    """One draft model for all sessions.

    It is placed for the vocabulary of the first target that it can use.

    Parameters
    ----------
    drafts_next_window : as :class:`Drafter` takes it.
    timeout_s : how long the engine may take to place the model, to open a session, or for one step or
        encoding. After that it hangs: sessions run without drafts until it answers.
    on_failure : called when a session's draft fails.
    check_pair : checks a target before the model is placed for it.

    Attributes
    ----------
    name, num_mel_bins : of the draft model.
    vocabulary_digest : of the targets that it drafts for; empty until the model is being placed.
    unusable : reasons why vocabularies cannot be used, by their digests.
    hangs : whether the engine exceeds ``timeout_s`` at the moment.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        place: PlaceDraft,
        *,
        drafts_next_window: bool = True,
        timeout_s: float = 15.0,
        on_failure: Callable[[], None] = lambda: None,
        check_pair: CheckPair = lambda _: None,
    ) -> None:
        self._on_failure = on_failure
        self._check_pair = check_pair
        self.name = checkpoint.name
        self.num_mel_bins = checkpoint.num_mel_bins
        self.hangs = False
        self._place = place
        self._drafts_next_window = drafts_next_window
        self._timeout_s = timeout_s
        self._thread = EngineThread[Drafted | Failed]("drafter", leave_process)
        self._encoder = TimedExecutor("draft-encoder")
        self._drafter: Drafter | None = None
        self.vocabulary_digest = ""
        self.unusable: dict[str, str] = {}
        self._placing: asyncio.Task[Drafter] | None = None
        self._not_placed = ""  # why the model could not be placed, until it is
        self._watching: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Timeout] = set()  # sessions that wait for the engine

    @property
    def num_free_slots(self) -> int | None:
        """Sessions that can still be opened; ``None`` before the model is placed."""
        return None if self._drafter is None else self._drafter.num_free_slots

    def check_health(self) -> None:
        """Raise :class:`TimeoutError` while the engine hangs."""
        if self.hangs:
            raise self._timeout()

    def set_up_for(self, target: TargetDescription) -> bool:
        """Return whether the draft uses a target's vocabulary.

        The first usable one is chosen. Choosing one starts to place the model, in a task that all sessions
        await. It continues if the client that started it cancels.
        """
        if not self.vocabulary_digest:
            try:
                self._check_pair(target)
            except PairMismatch as error:
                self.unusable[target.vocabulary.digest] = str(error)
                return False
            self.vocabulary_digest = target.vocabulary.digest
            self._placing = asyncio.create_task(self._place_for(target))
            self._placing.add_done_callback(_note_error)
            self._watching = self._watching or asyncio.create_task(
                watch(self._busy_s, self._timeout_s, self._note_hanging, self._note_return)
            )
        return target.vocabulary.digest == self.vocabulary_digest

    def needs(self, weights_digest: str = "") -> Needs:
        """Return what a session with drafts requires of a target, as far as is known."""
        return Needs(self.vocabulary_digest, weights_digest, dict(self.unusable))

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
            if (error := self._why_no_drafts()) is not None:
                session.receive(Failed(error))
            else:
                await self._open_in_time(session, session_id, target, length, options)
            yield session
        finally:  # also if the client cancels while the session is being opened
            self._thread.unsubscribe(session_id)
            session.close()

    async def _open_in_time(self, session: DraftStream, *args: Any) -> None:
        """Open a session, or let it fail once the engine is known to draft nothing."""
        try:
            async with asyncio.timeout(self._timeout_s) as opening:
                self._opening.add(opening)
                try:
                    await self._open(session, *args)
                finally:
                    self._opening.discard(opening)
        except TimeoutError:
            session.receive(Failed(self._timeout()))

    async def _open(
        self,
        session: DraftStream,
        session_id: str,
        target: TargetDescription,
        length: DraftLength,
        options: DecodingOptions,
    ) -> None:
        session.drafter = drafter = await self._drafter_for(target)
        max_ahead_tokens = target.limits.max_ahead_tokens
        await self._thread.call(
            lambda: drafter.open(session_id, length, options, max_ahead_tokens=max_ahead_tokens)
        )

    async def stop(self) -> None:
        """End the thread and the encoder."""
        for task in (self._placing, self._watching):
            if task is not None:
                task.cancel()
        await self._thread.stop()
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                await asyncio.to_thread(self._encoder.shutdown, cancel_futures=True)
        except TimeoutError:
            error = (
                f"The draft engine has not ended within {ENDS_WITHIN_S:g} s: it still encodes or is placed."
            )
            leave_process(DeviceFault(error))

    def _timeout(self) -> TimeoutError:
        return TimeoutError(f"The draft engine has not answered within {self._timeout_s:g} s.")

    async def _drafter_for(self, target: TargetDescription) -> Drafter:
        """Return the engine, its model placed for the target's vocabulary."""
        if not self.set_up_for(target) or self._placing is None:
            raise PairMismatch(self.why_not(target))
        return await asyncio.shield(self._placing)

    def why_not(self, target: TargetDescription) -> str:
        """Return why the draft cannot be used with a target."""
        return self.unusable.get(
            target.vocabulary.digest,
            f"Target '{target.model}' has another vocabulary than the one draft '{self.name}' was set up "
            "for: restart the draft server.",
        )

    async def _place_for(self, target: TargetDescription) -> Drafter:
        """Place the model, retrying until it succeeds, and start the engine."""
        try:
            while (model := await self._placed(target)) is None:
                self._fail_sessions()
                await asyncio.sleep(RETRY_PLACE_S)
        except PairMismatch as error:
            self.unusable[self.vocabulary_digest] = str(error)
            self.vocabulary_digest = ""  # another target may have one that it can use
            raise
        self._not_placed = ""
        logger.info("paired", extra={"draft": self.name, "target": target.model})
        self._drafter = Drafter(
            model, executor=self._encoder, wake=self._thread.wake, drafts_next_window=self._drafts_next_window
        )
        self._thread.start(self._drafter)
        return self._drafter

    async def _placed(self, target: TargetDescription) -> Model | None:
        """Place the model in the encoder's thread, which is watched; ``None`` if that fails."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._encoder, self._place, target)
        except PairMismatch:
            raise
        except Exception as error:
            if is_device_fault(error):
                leave_process(DeviceFault(f"The draft's device has failed: {error}"))
            logger.exception("draft model not placed")
            self._not_placed = repr(error)  # the error itself would keep parts of the model in memory
            return None

    def _why_no_drafts(self) -> Exception | None:
        """Return why a session that opens now would have no drafts; ``None`` if it has."""
        if self.hangs:
            return self._timeout()
        if self._not_placed:
            return RuntimeError(f"The draft model could not be placed: {self._not_placed}")
        return None

    def _fail_sessions(self) -> None:
        """Let all sessions continue without drafts, also those that wait to be opened."""
        if (error := self._why_no_drafts()) is None:
            return
        self._thread.fail_sessions(error)
        now_s = asyncio.get_running_loop().time()
        for opening in self._opening:
            if not opening.expired():
                opening.reschedule(now_s)

    def _busy_s(self) -> float:
        return max(self._thread.busy.seconds, self._encoder.busy.seconds)

    def _note_hanging(self) -> None:
        self.hangs = True
        logger.error("draft engine hangs", extra={"error": str(self._timeout())})
        self._fail_sessions()

    def _note_return(self) -> None:
        self.hangs = False
        logger.info("draft engine answers again")


class DraftStream:
    """The draft of one session.

    It takes audio and the target's events, and proposes blocks. If the draft fails, the session continues
    without it. A target that waits for candidates is then sent an empty block at every position.

    Attributes
    ----------
    drafter : the engine, once there is one.
    has_failed : whether it proposes nothing any more.
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
        """Send audio, or an event of the target."""
        if not isinstance(message, AudioChunk):
            self._last = message
        if self.drafter is not None and not self.has_failed:
            self._thread.post(partial(self.drafter.submit, self._id, message))
        elif not isinstance(message, AudioChunk):
            self._send_empty_block()

    def receive(self, event: Drafted | Failed) -> None:
        """Take a block, or the error after which none follows."""
        if self.has_failed:
            return
        if isinstance(event, Drafted):
            self._on_drafted(event)
        else:
            logger.error("draft failed", extra={"session": self._id}, exc_info=event.error)
            self.has_failed = True
            self._on_failure()
            self.close()
            self._on_drafted(Drafted(None, DraftReport(choice=Choice(0, 0, "the draft has failed"))))
            self._send_empty_block()

    def close(self) -> None:
        """Free its slot in the engine, as soon as that answers."""
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
        except (ServerDraining, TimeoutError):  # the transcript must not wait for figures
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


def _note_error(task: asyncio.Task[Drafter]) -> None:
    """Retrieve an error that no session awaits: asyncio would report it."""
    if not task.cancelled():
        task.exception()


def pair_ids(draft: Checkpoint, target: TargetDescription) -> list[int | None]:
    """Return the draft's id of each target token.

    Raise :class:`PairMismatch` if the two models cannot be paired.
    """
    return draft_ids(draft.vocabulary, target.vocabulary, draft_name=draft.name, target_name=target.model)


def place_draft(draft: Checkpoint, num_slots: int, target: TargetDescription) -> WhisperModel:
    """Place a draft that uses the target's vocabulary.

    Raise :class:`PairMismatch` if the two models cannot be paired.
    """
    ids = pair_ids(draft, target)
    is_same = ids == list(range(len(draft.vocabulary)))
    return WhisperModel(
        draft, num_slots, vocabulary=target.vocabulary, ids=None if is_same else ids, is_draft=True
    )
