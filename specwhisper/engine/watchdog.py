"""Detect work that hangs: measure how long the current work has taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from time import monotonic

HANGS_AFTER_S = 60.0  # longer than any forward pass or encoding of a target takes
ENDS_WITHIN_S = 15.0  # time for an engine's last work when its process stops
MAX_POLL_S = 1.0


class Busy:
    """Measures the current work of threads.

    Enter it around each piece of work; read it in any thread.
    """

    def __init__(self) -> None:
        self._began_s: dict[int, float] = {}  # by thread

    def __enter__(self) -> None:
        self._began_s[get_ident()] = monotonic()

    def __exit__(self, *_: object) -> None:
        del self._began_s[get_ident()]

    @property
    def seconds(self) -> float:
        """How long the oldest current work has taken; 0 without any."""
        began_s = self._began_s.copy().values()  # a copy: other threads change it
        return monotonic() - min(began_s) if began_s else 0.0


class Watchdog:
    """Notices when work takes longer than its limit, and when it ends.

    Parameters
    ----------
    error : makes the error of sessions while it hangs.
    on_hang, on_return : called in the event loop when it hangs, and when it has ended.
    """

    def __init__(
        self,
        busy_s: Callable[[], float],
        limit_s: float,
        error: Callable[[], Exception],
        *,
        on_hang: Callable[[], None],
        on_return: Callable[[], None] = lambda: None,
    ) -> None:
        self.hangs = False
        self.error = error
        self._busy_s = busy_s
        self._limit_s = limit_s
        self._on_hang = on_hang
        self._on_return = on_return
        self._watching: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Raise the error while it hangs."""
        if self.hangs:
            raise self.error()

    def start(self) -> None:
        """Watch from now on; further calls have no effect."""
        self._watching = self._watching or asyncio.create_task(self._watch())

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(MAX_POLL_S, self._limit_s / 4))
            if (self._busy_s() > self._limit_s) != self.hangs:
                self.hangs = not self.hangs
                (self._on_hang if self.hangs else self._on_return)()
