"""Place the draft model for a target's vocabulary, and retry until it is placed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from specwhisper.errors import DeviceFault, PairMismatch
from specwhisper.model.faults import is_device_fault, leave_process
from specwhisper.model.model import Model
from specwhisper.tasks import retrieve_error
from specwhisper_draft_server.transcriber import Requirements, TargetDescription

logger = logging.getLogger(__name__)

RETRY_PLACE_S = 60.0  # after a failure to place the model: memory may be free by then

# Places the draft model, set up for a target's vocabulary.
PlaceDraft = Callable[[TargetDescription], Model]


class Placement:
    """Places a draft model for the vocabulary of the first target.

    ========  ================================================  =================================
    State     It holds                                          A session that opens
    ========  ================================================  =================================
    unplaced  no task, no vocabulary                            chooses the vocabulary
    placing   a task that retries; after a failure its reason   waits for the first attempt
    placed    the task's model                                  drafts
    ========  ================================================  =================================

    Parameters
    ----------
    name : the draft model's, for messages.
    place : places the model; it runs in ``executor``.
    on_failed : called after a failed attempt; another one follows after :data:`RETRY_PLACE_S`.
    on_placed : called once with the model.

    Attributes
    ----------
    failure : why the last attempt failed; empty otherwise.
    """

    def __init__(
        self,
        name: str,
        place: PlaceDraft,
        executor: Executor,
        *,
        on_failed: Callable[[], None],
        on_placed: Callable[[Model, TargetDescription], None],
    ) -> None:
        self.failure = ""
        self._name = name
        self._place = place
        self._executor = executor
        self._on_failed = on_failed
        self._on_placed = on_placed
        self._vocabulary_digest = ""  # empty while it is unplaced
        self._task: asyncio.Task[None] | None = None

    def choose(self, target: TargetDescription) -> bool:
        """Return whether the draft uses a target's vocabulary.

        The first target's vocabulary is chosen. That starts a task that places the model, which all sessions
        await. The task continues if the client that started it cancels.
        """
        if not self._vocabulary_digest:
            self._vocabulary_digest = target.vocabulary.digest
            self._task = asyncio.create_task(self._place_for(target))
            self._task.add_done_callback(retrieve_error)
        return target.vocabulary.digest == self._vocabulary_digest

    async def done_for(self, target: TargetDescription) -> None:
        """Wait until the model is placed for a target.

        Raise :class:`PairMismatch` if it cannot be.
        """
        if not self.choose(target) or self._task is None:
            raise PairMismatch(self.why_not(target))
        await asyncio.shield(self._task)

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
        while (model := await self._attempt(target)) is None:
            self._on_failed()
            await asyncio.sleep(RETRY_PLACE_S)
        self.failure = ""
        self._on_placed(model, target)

    async def _attempt(self, target: TargetDescription) -> Model | None:
        """Place the model in the watched executor; return ``None`` if that fails."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._place, target)
        except Exception as error:
            if is_device_fault(error):
                leave_process(DeviceFault(f"The draft's device has failed: {error}"))
            logger.exception("draft model not placed")
            self.failure = repr(error)  # the error itself would keep parts of the model in memory
            return None
