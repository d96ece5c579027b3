"""Hints of a session, which go to its target at a pace that the target can keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from specwhisper.transcription.hints.feed import HintFeed
from specwhisper.types import HintText

MAX_AT_ONCE = 16
INTERVAL_S = 0.025  # for each: it costs the target some milliseconds, in which other sessions wait


class SessionHints(HintFeed):
    """Hints of a client or a recogniser, however many there are."""

    def __init__(self) -> None:
        super().__init__()
        self._has_new = asyncio.Event()

    def put(self, hint: HintText) -> None:
        """Add a hint, which replaces all text from its time on."""
        super().put(hint)
        self._has_new.set()

    async def send(self, receive: Callable[[HintText], None]) -> None:
        """Send a target all hints and those that follow, until cancelled."""
        self.restart()
        while True:
            hints = self.take(MAX_AT_ONCE)
            for hint in hints:
                receive(hint)
            if hints:
                await asyncio.sleep(INTERVAL_S * len(hints))
            else:
                self._has_new.clear()
                await self._has_new.wait()
