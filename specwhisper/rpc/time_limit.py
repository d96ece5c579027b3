"""A limit for each of many short waits, with one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf


class TimeLimit:
    """A context manager that calls back if its body takes too long.

    It may be entered again and again. A timer for each body would cost more than most bodies do.

    Parameters
    ----------
    limit_s : most seconds in the body.
    on_exceeded : called in the event loop if a body takes longer.
    """

    def __init__(self, limit_s: float, on_exceeded: Callable[[], object]) -> None:
        self._limit_s = limit_s
        self._on_exceeded = on_exceeded
        self._loop = asyncio.get_running_loop()
        self._entered_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        if self._limit_s == inf:
            return
        self._entered_s = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s, self._check)

    def __exit__(self, *_: object) -> None:
        self._entered_s = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        if self._entered_s is None:
            return
        left_s = self._entered_s + self._limit_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check)
        else:
            self._on_exceeded()
