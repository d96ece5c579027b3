"""Hints of a session, sent to its targets at a pace that they can keep."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import Callable

from specwhisper.transcription.hints import HintFeed
from specwhisper.types import TimedHint

# For each hint, and each of its bytes: a target takes about 1 ms for a short one and 9 ms for the longest,
# in which other sessions wait. So one session's hints take at most 4 % of its time.
INTERVAL_S, INTERVAL_S_PER_BYTE = 0.025, 50e-6
BURST_S = 16 * INTERVAL_S  # hints are sent at once until their intervals add up to this


class SessionHints(HintFeed):
    """The client's texts; a recogniser's until the client has sent one.

    Each text replaces all text from its time on, so a recognised word would replace captions that a client
    has sent ahead.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_new = asyncio.Event()
        self._has_clients = False

    def put(self, hint: TimedHint) -> None:
        """Add a text of the client."""
        self._has_clients = True
        self._put(hint)

    def put_recognised(self, hint: TimedHint) -> None:
        """Add a text of the recogniser, unless the client has sent one."""
        if not self._has_clients:
            self._put(hint)

    def _put(self, hint: TimedHint) -> None:
        super().put(hint)
        self._has_new.set()

    async def send(self, receive: Callable[[TimedHint], None], start_sample: int = 0) -> None:
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
