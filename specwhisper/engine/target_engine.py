"""A target's engine in its thread, and its sessions."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from specwhisper.audio.speech import find_voice
from specwhisper.engine.engine_thread import EndingPool, EngineThread
from specwhisper.engine.process import leave_process
from specwhisper.engine.verifier import Verifier
from specwhisper.engine.watchdog import HANGS_AFTER_S, Watchdog
from specwhisper.errors import TargetUnavailable
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import whisper_plan
from specwhisper.transcription.windows import TokenLimit
from specwhisper.types import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_WIDTH,
    FromTarget,
    Limits,
    Mode,
)

logger = logging.getLogger(__name__)


class TargetEngine:
    """A verifier in a thread, and executors that encode and align beside it.

    Create it in the event loop that receives its events.

    ``observe``: called with the events of each step, in that loop.
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
        self._encoder = EndingPool("encoder", model.max_windows)
        self._aligner = EndingPool("aligner")
        self.verifier = Verifier(
            model,
            executor=self._encoder,
            aligner=self._aligner,
            wake=self.thread.wake,
            limits=limits,
            max_width=max_width,
            max_num_batched_tokens=max_num_batched_tokens,
            latency_budget_ms=latency_budget_ms,
            plan=whisper_plan(model.vocabulary, model.tokenize, max_new_tokens, find_voice()),
        )
        self.thread.start(self.verifier)
        self._watchdog = Watchdog(self._busy_s, HANGS_AFTER_S, _hanging, on_hang=self._end_sessions)
        self._watchdog.start()

    async def check_health(self) -> None:
        """Return once the engine has run all earlier actions; raise while an executor hangs."""
        self._watchdog.check()
        await self.thread.call(lambda: None)

    async def check_room(self) -> int:
        """Return the number of free slots after all earlier actions; raise without room."""
        self._watchdog.check()
        return await self.thread.call(self.verifier.check_room)

    @asynccontextmanager
    async def session(
        self,
        session_id: str,
        mode: Mode,
        options: DecodingOptions,
        receive: Callable[[Any], None],
    ) -> AsyncIterator[None]:
        """Open a session, and call ``receive`` with its events in the event loop.

        Raises
        ------
        TargetUnavailable
            while the engine hangs.
        """
        self._watchdog.check()
        self.thread.subscribe(session_id, receive)
        try:
            await self.thread.call(lambda: self.verifier.open(session_id, mode, options))
            yield
        finally:  # the caller may leave while the session is being opened
            self.thread.unsubscribe(session_id)
            self.thread.post(lambda: self.verifier.close(session_id))

    def _busy_s(self) -> float:
        return max(each.busy.seconds for each in (self.thread, self._encoder, self._aligner))

    def _end_sessions(self) -> None:
        """End all sessions of an engine that hangs: they resume at another target."""
        error = _hanging()
        logger.error("engine hangs", extra={"error": str(error)})
        self.thread.fail_sessions(error)

    async def stop(self) -> None:
        self._watchdog.stop()
        await self.thread.stop()
        self._encoder.stop()
        self._aligner.stop()


def _hanging() -> TargetUnavailable:
    return TargetUnavailable(f"The target's engine has not answered for {HANGS_AFTER_S:g} s.")
