"""The draft model of this server, running in its thread once the target's vocabulary is known."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from draft_server.config import DraftConfig
from draft_server.link import TargetDescription
from specwhisper.errors import PairMismatch
from specwhisper.whisper.checkpoint import Checkpoint
from specwhisper.whisper.drafter import Drafted, Drafter
from specwhisper.whisper.engine_thread import EngineThread
from specwhisper.whisper.model import WhisperModel
from specwhisper.whisper.pairing import draft_ids

logger = logging.getLogger(__name__)


class Drafting:
    """One draft model for all sessions; placed when the first target has described itself."""

    def __init__(self, config: DraftConfig, checkpoint: Checkpoint) -> None:
        self.thread = EngineThread[Drafted]("drafter")
        self.checkpoint = checkpoint
        self._config = config
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="draft-encoder")
        self._drafter: Drafter | None = None
        self._vocabulary_digest = ""
        self._placing = asyncio.Lock()

    async def drafter_for(self, target: TargetDescription) -> Drafter:
        """Give the engine, its model set up to speak the target's vocabulary."""
        async with self._placing:
            if self._drafter is None:
                model = await asyncio.to_thread(self._place, target)
                self._drafter = Drafter(model, executor=self._executor, wake=self.thread.wake)
                self._vocabulary_digest = target.vocabulary.digest
                self.thread.start(self._drafter)
        if target.vocabulary.digest != self._vocabulary_digest:
            raise PairMismatch(
                f"Target '{target.model}' has another vocabulary than the one draft "
                f"'{self.checkpoint.name}' was set up "
                "for: restart the draft server."
            )
        return self._drafter

    async def stop(self) -> None:
        """End the thread and the encoder."""
        await self.thread.stop()
        self._executor.shutdown()

    def _place(self, target: TargetDescription) -> WhisperModel:
        draft = self.checkpoint
        ids = draft_ids(draft.vocabulary, target.vocabulary, draft_name=draft.name, target_name=target.model)
        logger.info("paired", extra={"draft": draft.name, "target": target.model})
        is_same = ids == list(range(len(draft.vocabulary)))
        return WhisperModel(
            draft, self._config.max_sessions, vocabulary=target.vocabulary, ids=None if is_same else ids
        )
