"""When a session has something to tell: at once what cannot wait, everything else together now and then."""

from __future__ import annotations

import asyncio

TELL_EVERY_S = 0.05  # nobody reads faster, while drafts change with every block


class Changes:
    """Wakes who tells of a session when others have changed it."""

    def __init__(self) -> None:
        self._have_come = asyncio.Event()
        self._are_pressing = asyncio.Event()
        self._due_s = 0.0  # when those that can wait may be told

    def note(self, *, is_pressing: bool = False) -> None:
        """Say that something has changed."""
        self._have_come.set()
        if is_pressing:
            self._are_pressing.set()

    async def wait(self) -> None:
        """Wait until there is something to tell; what has changed by then is taken for told."""
        await self._have_come.wait()
        try:
            async with asyncio.timeout_at(self._due_s):
                await self._are_pressing.wait()
        except TimeoutError:
            pass
        self._have_come.clear()
        self._are_pressing.clear()
        self._due_s = asyncio.get_running_loop().time() + TELL_EVERY_S
