"""Debounce of a session's changes.

Urgent changes are reported at once, others together at intervals.
"""

from __future__ import annotations

import asyncio

INTERVAL_S = 0.05  # draft text changes with every block; more updates than this cannot be read


class Debouncer:
    """Wakes the task that reports a session when other tasks have changed it."""

    def __init__(self) -> None:
        self._has_changed = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._due_s = 0.0  # when the next change that is not urgent may be reported

    def notify(self, *, urgent: bool = False) -> None:
        """Note that something has changed."""
        self._has_changed.set()
        if urgent:
            self._is_urgent.set()

    async def wait(self) -> None:
        """Wait until there are changes to report; all changes so far count as reported."""
        await self._has_changed.wait()
        try:
            async with asyncio.timeout_at(self._due_s):
                await self._is_urgent.wait()
        except TimeoutError:
            pass
        self._has_changed.clear()
        self._is_urgent.clear()
        self._due_s = asyncio.get_running_loop().time() + INTERVAL_S
