"""Run an engine in a thread of its own, so that the event loop never computes.

The thread owns the engine: everything that touches it is an action that the thread carries out between two
steps, so the engine needs no lock. Events go back to the event loop in one call per step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from specwhisper.types import Failed

logger = logging.getLogger(__name__)

Event_co = TypeVar("Event_co", covariant=True)
Event = TypeVar("Event")
T = TypeVar("T")


class Engine(Protocol[Event_co]):
    """What the thread runs."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything now."""

    def step(self) -> Sequence[tuple[str, Event_co]]:
        """Do one piece of work and give each session's events."""


class EngineThread(Generic[Event]):
    """Steps an engine for as long as it has work and hands its events to their sessions.

    Every method may be called from the event loop; :meth:`wake` and :meth:`post` from any thread.
    """

    def __init__(self, name: str) -> None:
        self._condition = threading.Condition()
        self._actions: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_stopping = False
        self._receivers: dict[str, Callable[[Event | Failed], None]] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._engine: Engine[Event] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, engine: Engine[Event]) -> None:
        """Begin to run ``engine``; from the event loop that its events go to."""
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End the thread after the step it is in."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def subscribe(self, session_id: str, receive: Callable[[Event | Failed], None]) -> None:
        """Have a session's events given to ``receive``, in order, in the event loop."""
        self._receivers[session_id] = receive

    def unsubscribe(self, session_id: str) -> None:
        """Drop what a session may still be sent."""
        self._receivers.pop(session_id, None)

    def wake(self) -> None:
        """Let the engine look for work."""
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def post(self, action: Callable[[], None]) -> None:
        """Have ``action`` carried out in the thread, before its next step."""
        with self._condition:
            self._actions.append(action)
            self._condition.notify()

    async def call(self, action: Callable[[], T]) -> T:
        """Carry out ``action`` in the thread and give its result, or raise its error."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def set_outcome(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            try:
                outcome = (action(), None)
            except Exception as error:
                loop.call_soon_threadsafe(set_outcome, None, error)
            else:
                loop.call_soon_threadsafe(set_outcome, *outcome)

        self.post(run)
        return await future

    def _run(self) -> None:
        engine, loop = self._engine, self._loop
        if engine is None or loop is None:
            raise RuntimeError("An engine thread runs only after start().")
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: self._actions or self._is_woken or self._is_stopping or engine.has_work
                )
                if self._is_stopping:
                    return
                actions, self._actions = self._actions, deque()
                self._is_woken = False
            try:
                for action in actions:
                    action()
                events = engine.step()
            except Exception as error:  # a bug: end the sessions it may have touched, keep serving
                logger.exception("engine failed")
                loop.call_soon_threadsafe(self._deliver_to_all, Failed(error))
                continue
            if events:
                loop.call_soon_threadsafe(self._deliver, events)

    def _deliver_to_all(self, event: Failed) -> None:
        for receive in list(self._receivers.values()):
            receive(event)

    def _deliver(self, events: Sequence[tuple[str, Event]]) -> None:
        for session_id, event in events:
            receive = self._receivers.get(session_id)
            if receive is not None:
                receive(event)
