"""Place the draft model for a target's vocabulary, and retry until it is placed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from specwhisper.errors import DeviceFault, PairMismatch
from specwhisper.model.backend import Encoder
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.faults import is_device_fault, leave_process
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import TranslatedModel, open_draft
from specwhisper.tasks import retrieve_error
from specwhisper.transcription.transcriber import Requirements, TargetDescription

logger = logging.getLogger(__name__)

RETRY_PLACE_S = 60.0  # after the model could not be placed: memory may be free by then

# Places the draft model, reordered to a target's vocabulary.
PlaceDraft = Callable[[TargetDescription], Model]
# Raises PairMismatch if a draft cannot use a target's vocabulary; quick, unlike placing the model.
CheckPair = Callable[[TargetDescription], object]


class Placement:
    """The loading of a draft model, for the vocabulary of the first usable target.

    ========  ================================================  =================================
    State     It holds                                          A session that opens
    ========  ================================================  =================================
    unplaced  no task, no vocabulary                            chooses the vocabulary
    placing   a task that retries; after a failure its reason   waits for the first attempt
    placed    the task's model                                  drafts
    ========  ================================================  =================================

    A vocabulary that turns out to be unusable while the model is placed leads back to *unplaced*.

    Parameters
    ----------
    name : of the draft model, for messages.
    place : places the model; it runs in ``executor``.
    check_pair : checks a target before the model is placed for it.
    on_failed : called after an attempt that failed; another one follows after :data:`RETRY_PLACE_S`.
    on_placed : called once with the model.

    Attributes
    ----------
    failure : the reason of the last attempt if it failed; empty before and after.
    """

    def __init__(
        self,
        name: str,
        place: PlaceDraft,
        check_pair: CheckPair,
        executor: Executor,
        *,
        on_failed: Callable[[], None],
        on_placed: Callable[[Model, TargetDescription], None],
    ) -> None:
        self.failure = ""
        self._name = name
        self._place = place
        self._check_pair = check_pair
        self._executor = executor
        self._on_failed = on_failed
        self._on_placed = on_placed
        self._vocabulary_digest = ""  # empty while it is unplaced
        self._unusable: dict[str, str] = {}  # reasons by digest
        self._task: asyncio.Task[None] | None = None

    def choose(self, target: TargetDescription) -> bool:
        """Return whether the draft uses a target's vocabulary.

        The first usable one is chosen. Choosing one starts to place the model, in a task that all sessions
        await. It continues if the client that started it cancels.
        """
        if not self._vocabulary_digest:
            try:
                self._check_pair(target)
            except PairMismatch as error:
                self._unusable[target.vocabulary.digest] = str(error)
                return False
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
        return Requirements(self._vocabulary_digest, weights_digest, dict(self._unusable))

    def why_not(self, target: TargetDescription) -> str:
        """Return why the draft cannot be used with a target."""
        return self._unusable.get(
            target.vocabulary.digest,
            f"Target '{target.model}' has another vocabulary than the one draft '{self._name}' was set up "
            "for: restart the draft server.",
        )

    def cancel(self) -> None:
        """Make no further attempt."""
        if self._task is not None:
            self._task.cancel()

    async def _place_for(self, target: TargetDescription) -> None:
        try:
            while (model := await self._attempt(target)) is None:
                self._on_failed()
                await asyncio.sleep(RETRY_PLACE_S)
        except PairMismatch as error:
            self._unusable[self._vocabulary_digest] = str(error)
            self._vocabulary_digest = ""  # another target may have one that it can use
            raise
        self.failure = ""
        self._on_placed(model, target)

    async def _attempt(self, target: TargetDescription) -> Model | None:
        """Place the model in the watched executor; return ``None`` if that fails."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._place, target)
        except PairMismatch:
            raise
        except Exception as error:
            if is_device_fault(error):
                leave_process(DeviceFault(f"The draft's device has failed: {error}"))
            logger.exception("draft model not placed")
            self.failure = repr(error)  # the error itself would keep parts of the model in memory
            return None


def place_draft(
    draft: Checkpoint,
    num_slots: int,
    target: TargetDescription,
    *,
    device: str = "cpu",
    encoder: Encoder | None = None,
    cut_windows: bool = False,
) -> WhisperModel | TranslatedModel:
    """Place a draft for the target's vocabulary.

    Parameters
    ----------
    encoder : the draft's, loaded before; by default it is loaded onto the device.
    cut_windows : see :class:`specwhisper.model.model.WhisperModel`.
    """
    return open_draft(
        draft,
        num_slots,
        target.vocabulary,
        device=device,
        encoder=encoder,
        cut_windows=cut_windows,
    )
