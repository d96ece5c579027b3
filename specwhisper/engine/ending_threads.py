"""Threads that are stopped and joined before the interpreter ends.

A thread that computes with a model while the interpreter ends may abort the process: torch does. Threads of
``concurrent.futures`` are joined too, but before any exit hook and while other threads still work: an
engine's next submit would fail. The threads here end last, in ``atexit``, after all threads that are not
daemons.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any
from weakref import WeakSet

from specwhisper.engine.watchdog import ENDS_WITHIN_S, Busy

_threads: WeakSet[EndingThread] = WeakSet()


class EndingThread(Thread):
    """A daemon thread that does not outlive the interpreter.

    Parameters
    ----------
    request_stop : asks the thread to end after its current work; called in any thread.
    """

    def __init__(self, target: Callable[[], object], name: str, request_stop: Callable[[], object]) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.request_stop = request_stop
        _threads.add(self)


@atexit.register
def _end_all() -> None:
    """Stop and join the threads, for at most :data:`ENDS_WITHIN_S`."""
    alive = [thread for thread in _threads if thread.is_alive()]  # none in a forked process
    for thread in alive:
        thread.request_stop()
    deadline_s = monotonic() + ENDS_WITHIN_S
    for thread in alive:
        thread.join(max(0.0, deadline_s - monotonic()))


class EndingPool(Executor):
    """Runs calls in threads that are all started at once.

    None could be started after the main thread has ended.
    """

    def __init__(self, name: str, num_threads: int) -> None:
        self.busy = Busy()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._is_stopping = False
        self._threads = [
            EndingThread(self._run, f"{name}-{number}", self.stop) for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def stop(self) -> None:
        """End the threads after their current calls; queued calls never end."""
        self._is_stopping = True
        for _ in self._threads:
            self._calls.put(None)

    def _run(self) -> None:
        while not self._is_stopping and (queued := self._calls.get()) is not None:
            future, call = queued
            if future.set_running_or_notify_cancel():
                self._complete(future, call)
            del queued, future, call  # an idle thread keeps nothing alive

    def _complete(self, future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            with self.busy:
                result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
