"""Fair turns of the threads that decode recordings: a few work, the others wait.

A few kilobytes can hold hours of silence. A caller that sends such files waits for its own turns.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import Event, Lock
from time import thread_time
from typing import Any, Self, TypeVar

T = TypeVar("T")

# Threads that wait for a turn cost little; those of the loop's own pool would be missed by everything else.
THREADS = ThreadPoolExecutor(1_000, "decoding")
MAX_WORKING = max(1, min(4, (os.cpu_count() or 1) // 2))  # the other cores are for the models
TURN_S = 0.005

# Whose recordings the current call decodes.
decoding_for: ContextVar[str] = ContextVar("decoding_for", default="")


class Turns:
    """Decides which threads work.

    The next one is of the caller that has had the least time, and of its recordings the one that has had the
    least: a short recording passes the long ones.

    ``max_working``: most threads at once, of all callers.
    """

    def __init__(self, max_working: int = MAX_WORKING) -> None:
        self._max_working = max_working
        self._lock = Lock()
        self._working: set[Turn] = set()
        self._waiting: set[Turn] = set()
        self._had_s: dict[str, float] = {}  # by caller, of those that work or wait

    def wait_for(self, turn: Turn) -> None:
        with self._lock:
            self._waiting.add(turn)
            self._had_s.setdefault(turn.caller, 0.0)
            self._call_next()
        turn.is_called.wait()
        turn.is_called.clear()

    def end(self, turn: Turn, spent_s: float) -> None:
        with self._lock:
            self._working.remove(turn)
            turn.had_s += spent_s
            self._had_s[turn.caller] += spent_s
            if all(other.caller != turn.caller for other in self._working | self._waiting):
                del self._had_s[turn.caller]
            self._call_next()

    def _call_next(self) -> None:
        while self._waiting and len(self._working) < self._max_working:
            first = min(self._waiting, key=lambda turn: (self._had_s[turn.caller], turn.had_s))
            self._waiting.remove(first)
            self._working.add(first)
            first.is_called.set()


TURNS = Turns()  # this process's


class Turn:
    """The turns of one recording: a context manager around each, in any thread."""

    def __init__(self, turns: Turns = TURNS) -> None:
        self.caller = decoding_for.get()
        self.had_s = 0.0  # processor time so far
        self.is_called = Event()
        self._turns = turns
        self._began_s = 0.0

    def __enter__(self) -> Self:
        self._turns.wait_for(self)
        self._began_s = thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._turns.end(self, thread_time() - self._began_s)

    def pass_on(self) -> None:
        """Let others work if this turn has lasted long enough."""
        if thread_time() - self._began_s >= TURN_S:
            self.__exit__()
            self.__enter__()


async def in_turn(turn: Turn, work: Callable[..., T], *args: Any) -> T:
    """Return what a function returns, in a thread once its turn has come."""

    def wait_and_work() -> T:
        with turn:
            return work(*args)

    return await asyncio.get_running_loop().run_in_executor(THREADS, wait_and_work)
