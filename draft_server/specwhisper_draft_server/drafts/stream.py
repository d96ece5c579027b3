"""The draft of one session, which may fail without ending the session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.engine_thread import EngineThread
from specwhisper.errors import ServerDraining
from specwhisper.speculation.statistics import DraftReport
from specwhisper.types import AudioChunk, Candidates, Commit, Failed, Mode, WindowOpened

logger = logging.getLogger(__name__)

REPORT_S = 1.0  # to wait for a session's last figures, for which its transcript waits


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
