"""Run a recogniser in its own thread, for all sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from specwhisper.engine.draft_state import Drafted
from specwhisper.engine.watchdog import ENDS_WITHIN_S, TimedExecutor, Watchdog
from specwhisper.errors import DeviceFault, check_between
from specwhisper.model.faults import leave_process
from specwhisper.options import DecodingOptions, Task
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcriber import Requirements, TargetDescription
from specwhisper_draft_server.recognisers.protocol import Recogniser, RecogniserStream
from specwhisper_draft_server.recognisers.stream import RecognisedStream

logger = logging.getLogger(__name__)

MIN_PIECE_S, MAX_PIECE_S = 0.01, 30.0


class AnyTarget:
    """The targets that a recogniser drafts for: all of them; see :class:`Pairing`."""

    def choose(self, target: TargetDescription) -> bool:
        """Return whether it can be used with a target: always."""
        return True

    async def done_for(self, target: TargetDescription) -> None:
        """Return at once."""

    def requirements(self, weights_digest: str = "") -> Requirements:
        """Return what a session requires of a target."""
        return Requirements("", weights_digest)

    def why_not(self, target: TargetDescription) -> str:
        """Return nothing: it can be used with every target."""
        return ""


class RecogniserDrafting:
    """A recogniser that drafts for all sessions; see :class:`Drafting`.

    Parameters
    ----------
    timeout_s : how long a call of the recogniser may take. After that it hangs: open sessions continue
        without drafts, and so do new ones until it answers.
    on_failure : called when a session's draft fails.

    Raises
    ------
    InvalidRequest : if the recogniser asks for pieces of a length that it cannot have.
    """

    num_mel_bins = None
    num_free_slots = None  # it has no limit of sessions

    def __init__(
        self,
        recogniser: Recogniser,
        *,
        timeout_s: float = 15.0,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = recogniser.name
        self.placement = AnyTarget()
        self._recogniser = recogniser
        self._piece_s: float | None = getattr(recogniser, "piece_s", None)
        if self._piece_s is not None:
            check_between("The recogniser's piece_s", self._piece_s, MIN_PIECE_S, MAX_PIECE_S)
        self._timeout_s = timeout_s
        self._on_failure = on_failure
        self._executor = TimedExecutor("recogniser")
        self._sessions: set[RecognisedStream] = set()
        self.watchdog = Watchdog(
            lambda: self._executor.busy.seconds,
            timeout_s,
            self._timeout,
            on_hang=self._note_hanging,
            on_return=self._note_return,
        )

    @asynccontextmanager
    async def session(
        self,
        session_id: str,
        target: TargetDescription,
        length: DraftLength,
        options: DecodingOptions,
        *,
        receive: Callable[[Drafted], None],
    ) -> AsyncIterator[RecognisedStream]:
        """Open a session; ``receive`` is called with its hints, in the event loop."""
        self.watchdog.start()
        open_stream: Callable[[float], RecogniserStream | None]
        is_live = options.live is not None
        open_stream = partial(self._recogniser.open, options.language, is_live=is_live)
        if options.task is Task.TRANSLATE:  # other words than the audio's
            open_stream = _open_none
        stream = RecognisedStream(
            session_id,
            open_stream,
            self._executor,
            receive,
            self._on_failure,
            is_live=is_live,
            piece_s=self._piece_s,
        )
        self._sessions.add(stream)
        running = asyncio.create_task(stream.run())
        try:
            if self.watchdog.hangs:
                stream.fail(self._timeout())
            yield stream
        finally:
            self._sessions.discard(stream)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def stop(self) -> None:
        """End the thread."""
        self.watchdog.stop()
        try:
            await self._executor.end()
        except TimeoutError:
            leave_process(DeviceFault(f"The recogniser has not ended within {ENDS_WITHIN_S:g} s."))

    def _timeout(self) -> TimeoutError:
        return TimeoutError(f"The recogniser has not answered within {self._timeout_s:g} s.")

    def _note_hanging(self) -> None:
        logger.error("draft engine hangs", extra={"error": str(self._timeout())})
        for session in self._sessions:
            session.fail(self._timeout())

    def _note_return(self) -> None:
        logger.info("draft engine answers again")


def _open_none(start_s: float) -> None:
    """Begin no stream."""
