"""The draft model of this server, in its thread, and each session's part of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from specwhisper.errors import PairMismatch, ServerDraining
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import AudioChunk, Candidates, Commit, Failed, Mode, WindowOpened
from specwhisper.whisper.checkpoint import Checkpoint
from specwhisper.whisper.drafter import Drafter
from specwhisper.whisper.drafter_session import Drafted
from specwhisper.whisper.engine_thread import EngineThread
from specwhisper.whisper.model import Model, WhisperModel
from specwhisper.whisper.pairing import draft_ids

logger = logging.getLogger(__name__)

# Makes a draft speak a target's vocabulary.
PlaceDraft = Callable[[TargetDescription], Model]


class Drafting:
    """One draft model for all sessions; placed when the first target has described itself.

    Parameters
    ----------
    runs_ahead : as :class:`Drafter` takes it.
    note_failure : called where a session's draft fails.

    Attributes
    ----------
    name, num_mel_bins : of the draft model.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        place: PlaceDraft,
        *,
        runs_ahead: bool = True,
        note_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._note_failure = note_failure
        self.name = checkpoint.name
        self.num_mel_bins = checkpoint.num_mel_bins
        self._place = place
        self._runs_ahead = runs_ahead
        self._thread = EngineThread[Drafted | Failed]("drafter")
        self._encoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="draft-encoder")
        self._drafter: Drafter | None = None
        self._vocabulary_digest = ""
        self._placing: asyncio.Task[Drafter] | None = None

    @property
    def num_free_slots(self) -> int | None:
        """Sessions that can still be opened; ``None`` before the model is placed."""
        return None if self._drafter is None else self._drafter.num_free_slots

    @asynccontextmanager
    async def session(
        self,
        session_id: str,
        target: TargetDescription,
        length: DraftLength,
        options: DecodingOptions,
        *,
        receive: Callable[[Drafted], None],
    ) -> AsyncIterator[DraftSession]:
        """Open a session; ``receive`` gets its blocks and reports, in the event loop."""
        drafter = await self._drafter_for(target)
        max_ahead_tokens = target.limits.max_ahead_tokens
        session = DraftSession(session_id, drafter, self._thread, length.mode, receive, self._note_failure)
        self._thread.subscribe(session_id, session.receive)
        try:
            await self._thread.call(
                lambda: drafter.open(session_id, length, options, max_ahead_tokens=max_ahead_tokens)
            )
            yield session
        finally:  # also when the client leaves while the session is being opened
            self._thread.unsubscribe(session_id)
            self._thread.post(lambda: drafter.close(session_id))

    async def stop(self) -> None:
        """End the thread and the encoder."""
        if self._placing is not None:
            self._placing.cancel()
        await self._thread.stop()
        self._encoder.shutdown(cancel_futures=True)

    async def _drafter_for(self, target: TargetDescription) -> Drafter:
        """Give the engine, its model set up to speak the target's vocabulary."""
        drafter = self._drafter
        if drafter is None:
            # One task for all who wait: it goes on when the client that began it leaves.
            if self._placing is None or self._placing.done():
                self._placing = asyncio.create_task(self._place_for(target))
            drafter = await asyncio.shield(self._placing)
        if target.vocabulary.digest != self._vocabulary_digest:
            raise PairMismatch(
                f"Target '{target.model}' has another vocabulary than the one draft '{self.name}' was set up "
                "for: restart the draft server."
            )
        return drafter

    async def _place_for(self, target: TargetDescription) -> Drafter:
        model = await asyncio.to_thread(self._place, target)
        logger.info("paired", extra={"draft": self.name, "target": target.model})
        self._drafter = Drafter(
            model, executor=self._encoder, wake=self._thread.wake, runs_ahead=self._runs_ahead
        )
        self._vocabulary_digest = target.vocabulary.digest
        self._thread.start(self._drafter)
        return self._drafter


class DraftSession:
    """One session's draft: hears the audio and the target, and proposes blocks.

    A draft is only advice: when it fails, the session goes on without it. A target that waits for candidates
    is then told at every position that there are none.
    """

    def __init__(
        self,
        session_id: str,
        drafter: Drafter,
        thread: EngineThread[Drafted | Failed],
        mode: Mode,
        give: Callable[[Drafted], None],
        note_failure: Callable[[], None],
    ) -> None:
        self._note_failure = note_failure
        self._id = session_id
        self._drafter = drafter
        self._thread = thread
        self._mode = mode
        self._give = give
        self._has_failed = False
        self._last: WindowOpened | Commit | None = None

    def hear(self, message: AudioChunk | WindowOpened | Commit) -> None:
        """Pass on audio, and what the target says."""
        if not isinstance(message, AudioChunk):
            self._last = message
        if not self._has_failed:
            self._thread.post(partial(self._drafter.submit, self._id, message))
        elif not isinstance(message, AudioChunk):
            self._give_way()

    def receive(self, event: Drafted | Failed) -> None:
        """Take a block, or the news that there will be none."""
        if isinstance(event, Drafted):
            self._give(event)
        elif not self._has_failed:
            logger.error("draft failed", extra={"session": self._id}, exc_info=event.error)
            self._has_failed = True
            self._note_failure()
            self._thread.post(partial(self._drafter.close, self._id))
            self._give_way()

    async def last_report(self) -> DraftReport:
        """Give what the draft did since its last block."""
        try:
            return await self._thread.call(partial(self._drafter.report, self._id))
        except ServerDraining:  # which is no reason to keep back a transcript
            return DraftReport()

    def _give_way(self) -> None:
        """Tell a target that waits for candidates to go on alone."""
        if self._mode.self_decodes:
            return
        match self._last:
            case WindowOpened(window=window):
                self._give(Drafted(Candidates(window.id, 0, 0, ())))
            case Commit(is_final=False) as commit:
                end = commit.base + len(commit.tokens)
                self._give(Drafted(Candidates(commit.window_id, end, end, ())))


def place_draft(draft: Checkpoint, num_slots: int, target: TargetDescription) -> WhisperModel:
    """Place a draft that speaks the target's vocabulary, or say why the two cannot work together."""
    ids = draft_ids(draft.vocabulary, target.vocabulary, draft_name=draft.name, target_name=target.model)
    is_same = ids == list(range(len(draft.vocabulary)))
    return WhisperModel(
        draft, num_slots, vocabulary=target.vocabulary, ids=None if is_same else ids, is_draft=True
    )
