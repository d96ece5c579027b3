"""Hints on their way to a target, at a pace that it can keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from specwhisper.transcription.hints.feed import HintFeed
from specwhisper.types import HintText

MAX_AT_ONCE = 16
INTERVAL_S = 0.025  # for each: it costs the target some milliseconds, in which other sessions wait


class PacedHints(HintFeed):
    """Hints that go to one target after another, however many there are."""

    def __init__(self) -> None:
        super().__init__()
        self._has_new = asyncio.Event()

    def put(self, hint: HintText) -> None:
        """Add a hint, which replaces all text from its time on."""
        super().put(hint)
        self._has_new.set()

    async def send(self, receive: Callable[[HintText], None], start_sample: int = 0) -> None:
        """Send a target the hints for the audio from a time on, until cancelled."""
        self.restart(start_sample)
        while True:
            hints = self.take(MAX_AT_ONCE)
            for hint in hints:
                receive(hint)
            if hints:
                await asyncio.sleep(INTERVAL_S * len(hints))
            else:
                self._has_new.clear()
                await self._has_new.wait()
