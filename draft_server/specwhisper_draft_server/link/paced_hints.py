"""Hints on their way to a target, at a pace that it can keep."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import Callable

from specwhisper.transcription.hints import HintFeed
from specwhisper.types import TimedHint

# For each hint, and for each of its bytes: a target takes some 1 ms for a short one and 9 ms for the longest,
# in which other sessions wait. So one session's hints take at most 4 % of its time.
INTERVAL_S, INTERVAL_S_PER_BYTE = 0.025, 50e-6
BURST_S = 16 * INTERVAL_S  # of intervals that are waited at once, after their hints


class PacedHints(HintFeed):
    """Hints that go to one target after another, however many there are."""

    def __init__(self) -> None:
        super().__init__()
        self._has_new = asyncio.Event()

    def put(self, hint: TimedHint) -> None:
        """Add a hint, which replaces all text from its time on."""
        super().put(hint)
        self._has_new.set()

    async def send(self, receive: Callable[[TimedHint], None], start_sample: int = 0) -> None:
        """Send a target the hints for the audio from a time on, until cancelled."""
        self.restart(start_sample)
        while True:
            interval_s = 0.0
            while interval_s < BURST_S and (hints := self.take(1)):
                receive(hints[0])
                interval_s += INTERVAL_S + INTERVAL_S_PER_BYTE * len(hints[0].text.encode())
            if interval_s:
                await sleep(interval_s)
            else:
                self._has_new.clear()
                await self._has_new.wait()
