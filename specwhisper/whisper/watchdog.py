"""Notice work that hangs: how long the current piece has taken, and whether that is too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

HANGS_AFTER_S = 60.0  # of a target's engine: more than any forward pass or encoding takes
ENDS_WITHIN_S = 15.0  # what an engine still does when its process stops
MAX_POLL_S = 1.0


class Busy:
    """Measures the current piece of work of one thread; entered around each, read from any thread."""

    def __init__(self) -> None:
        self._began_s: float | None = None

    def __enter__(self) -> None:
        self._began_s = monotonic()

    def __exit__(self, *_: object) -> None:
        self._began_s = None

    @property
    def seconds(self) -> float:
        """How long the current piece has taken; 0 between two."""
        began_s = self._began_s
        return 0.0 if began_s is None else monotonic() - began_s


class TimedWorker(ThreadPoolExecutor):
    """An executor of one thread that measures its current call."""

    def __init__(self, name: str) -> None:
        super().__init__(max_workers=1, thread_name_prefix=name)
        self.busy = Busy()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call."""
        return super().submit(self._call, fn, *args, **kwargs)

    def _call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        with self.busy:
            return fn(*args, **kwargs)


async def watch(
    busy_s: Callable[[], float],
    limit_s: float,
    on_hang: Callable[[], None],
    on_return: Callable[[], None] = lambda: None,
) -> None:
    """Call ``on_hang`` when work exceeds its limit and ``on_return`` once it is done, until cancelled."""
    hangs = False
    while True:
        await asyncio.sleep(min(MAX_POLL_S, limit_s / 4))
        if (busy_s() > limit_s) != hangs:
            hangs = not hangs
            (on_hang if hangs else on_return)()
