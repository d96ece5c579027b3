"""Run an engine in a thread of its own, so that the event loop never computes.

The thread owns the engine: other threads post actions, which run between two steps, so the engine needs no
lock. A server's events go to its event loop in one call per step. Without an event loop
(:mod:`specwhisper.engine.shared_pair`), sessions receive their events in the engine's thread.

Threads here are stopped and joined before the interpreter ends: one that computes with a model meanwhile may
abort the process, as torch does. Threads of ``concurrent.futures`` are joined too, but before any exit hook
and while other threads still work: an engine's next submit would fail. These end last, in ``atexit``, after
all threads that are not daemons.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from specwhisper.engine.watchdog import ENDS_WITHIN_S, Busy
from specwhisper.errors import DeviceFault, ServerDraining
from specwhisper.types import Failed

_threads: WeakSet[EndingThread] = WeakSet()


class EndingThread(Thread):
    """A daemon thread that does not outlive the interpreter.

    ``request_stop``: asks the thread to end after its current work; called in any thread.
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
    """Runs calls in threads that are all started at once: none could be after the main thread has ended."""

    def __init__(self, name: str, num_threads: int = 1) -> None:
        self.busy = Busy()  # running calls, without queued ones
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

    async def end(self) -> None:
        """Drop queued calls, and wait for running ones; raise ``TimeoutError`` if they do not end."""
        self.stop()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, ENDS_WITHIN_S)
            if thread.is_alive():
                raise TimeoutError

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


logger = logging.getLogger(__name__)

Event_co = TypeVar("Event_co", covariant=True)
Event = TypeVar("Event")
T = TypeVar("T")


class Engine(Protocol[Event_co]):
    @property
    def has_work(self) -> bool: ...

    @property
    def wake_after_s(self) -> float:
        """Seconds until a step has work by itself; 0 if it never has."""

    def step(self) -> Sequence[tuple[str, Event_co]]:
        """Do one piece of work and return events, each with its session id."""


class EngineThread(Generic[Event]):
    """Steps an engine while it has work, and delivers its events to their sessions.

    Every method may be called from the event loop; :meth:`wake` and :meth:`post` from any thread.

    Parameters
    ----------
    on_fault : called with the fault that ends the thread; no step follows. A thread that does not end after
        :meth:`stop` is such a fault.
    observe : called with the events of each step, in the event loop.
    """

    def __init__(
        self,
        name: str,
        on_fault: Callable[[DeviceFault], object] = lambda _: None,
        observe: Callable[[Sequence[tuple[str, Event]]], None] = lambda _: None,
    ) -> None:
        self.busy = Busy()
        self._on_fault = on_fault
        self._observe = observe
        self._condition = threading.Condition()
        self._actions: deque[Callable[[], object]] = deque()
        self._is_stopping = False
        self._receivers: dict[str, Callable[[Event | Failed], None]] = {}
        self._name = name
        self._thread: EndingThread | None = None

    def start(self, engine: Engine[Event], call_soon: Callable[..., object] | None = None) -> None:
        """Start the thread with an engine.

        ``call_soon``: delivers events: it is called in the engine's thread with a function and its
        arguments. By default, the running event loop's ``call_soon_threadsafe``.
        """
        call_soon = call_soon or asyncio.get_running_loop().call_soon_threadsafe
        self._thread = EndingThread(partial(self._run, engine, call_soon), self._name, self.stop_soon)
        self._thread.start()

    @property
    def has_sessions(self) -> bool:
        """Whether any session is subscribed."""
        return bool(self._receivers)

    async def stop(self) -> None:
        """End the thread after its current step and all posted actions."""
        self.stop_soon()
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        await asyncio.to_thread(thread.join, ENDS_WITHIN_S)
        if thread.is_alive():
            self._on_fault(DeviceFault(f"The engine has not ended within {ENDS_WITHIN_S:g} s: it hangs."))

    def stop_soon(self) -> None:
        with self._condition:
            self._is_stopping = True
            self._condition.notify()

    def leave_to_parent(self, error: Exception) -> None:
        """Fail the sessions and refuse actions, in a forked process without the thread."""
        self._condition = threading.Condition()  # the thread may have held it
        self._is_stopping = True
        self.fail_sessions(error)

    def subscribe(self, session_id: str, receive: Callable[[Event | Failed], None]) -> None:
        """Call ``receive`` with a session's events, in order, in the event loop."""
        self._receivers[session_id] = receive

    def unsubscribe(self, session_id: str) -> None:
        self._receivers.pop(session_id, None)

    def fail_sessions(self, error: Exception) -> None:
        """End every session with an error; from the event loop."""
        for receive in list(self._receivers.values()):
            receive(Failed(error))

    def wake(self) -> None:
        """Let the thread check whether its engine has work."""
        with self._condition:
            self._condition.notify()

    def post(self, *actions: Callable[[], object]) -> bool:
        """Run actions together in the thread, before its next step; ``False`` once it stops."""
        with self._condition:
            if self._is_stopping:
                return False
            self._actions += actions
            self._condition.notify()
            return True

    async def call(self, action: Callable[[], T]) -> T:
        """Run ``action`` in the thread and return its result; a cancelled call may still run."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action())
            except Exception as error:
                future.set_exception(error)

        if not self.post(run):
            raise ServerDraining("This server is stopping; use another one or try again in a moment.")
        return await asyncio.wrap_future(future)

    def _run(self, engine: Engine[Event], call_soon: Callable[..., object]) -> None:
        while True:
            try:
                actions, is_stopping = self._next_actions(engine)
                for action in actions:
                    self._run_action(action)
                if is_stopping:
                    return
                with self.busy:
                    events = engine.step()
            except DeviceFault as fault:
                self._on_fault(fault)
                self._fail_all(call_soon, fault)
                return
            except Exception as error:  # a bug
                self._fail_all(call_soon, error)
                continue
            if events:
                call_soon(self._deliver, events)

    def _next_actions(self, engine: Engine[Event]) -> tuple[Sequence[Callable[[], object]], bool]:
        """Wait for work; return the actions to run before the next step, and whether none follows."""
        with self._condition:
            while not self._actions and not self._is_stopping:
                timeout_s = engine.wake_after_s  # first: if it is over by the next line, there is work
                if engine.has_work:
                    break
                self._condition.wait(timeout_s or None)
            actions, self._actions = self._actions, deque()
            return actions, self._is_stopping

    def _run_action(self, action: Callable[[], object]) -> None:
        try:
            with self.busy:
                action()
        except DeviceFault:
            raise
        except Exception:  # a bug: engines send a session's own errors to that session
            logger.exception("action failed")

    def _fail_all(self, call_soon: Callable[..., object], error: Exception) -> None:
        """Fail all open sessions after a bug; the thread continues."""
        logger.exception("engine failed")
        call_soon(self.fail_sessions, error)

    def _deliver(self, events: Sequence[tuple[str, Event]]) -> None:
        for session_id, event in events:
            receive = self._receivers.get(session_id)
            if receive is not None:
                receive(event)
        self._observe(events)
