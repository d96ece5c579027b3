"""Run an engine in simulated time: a host steps it as a thread would, and each step takes time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from typing import Any, Generic, TypeVar

import simpy

from specwhisper.engine.engine_thread import Engine
from specwhisper.types import NS_PER_S

Event = TypeVar("Event")


class Clock:
    """An engine's clock: simulated time plus the time that the current step has taken so far."""

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment
        self._spent_s = 0.0

    def __call__(self) -> int:
        return round((self._environment.now + self._spent_s) * NS_PER_S)

    def spend(self, seconds: float) -> None:
        self._spent_s += seconds

    def take_spent_s(self) -> float:
        """Return the computing time since the last call, and reset it."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s


class Host(Generic[Event]):
    """Runs an engine as :class:`specwhisper.engine.engine_thread.EngineThread` does.

    Parameters
    ----------
    deliver : called with each session's events at the end of the step that returned them.
    """

    def __init__(
        self, environment: simpy.Environment, clock: Clock, deliver: Callable[[str, Event], None]
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._deliver = deliver
        self._actions: deque[tuple[Callable[[], object], float]] = deque()
        self._woken = environment.event()

    def start(self, engine: Engine[Event]) -> None:
        self._environment.process(self._run(engine))

    def post(self, action: Callable[[], object], cost_s: float = 0.0) -> None:
        """Run an action between two steps; it takes ``cost_s``."""
        self._actions.append((action, cost_s))
        self.wake()

    def wake(self) -> None:
        if not self._woken.triggered:
            self._woken.succeed()

    def _run(self, engine: Engine[Event]) -> Generator[simpy.Event, Any, None]:
        while True:
            while not self._actions and not engine.has_work:
                self._woken = self._environment.event()
                wake_after_s = engine.wake_after_s
                rest = [self._environment.timeout(wake_after_s + 1e-9)] if wake_after_s else []
                yield simpy.AnyOf(self._environment, [self._woken, *rest])
            while self._actions:
                action, cost_s = self._actions.popleft()
                action()
                self._clock.spend(cost_s)
            events = engine.step()
            if spent_s := self._clock.take_spent_s():
                yield self._environment.timeout(spent_s)
            for session, event in events:
                self._deliver(session, event)


class SimulatedEncoder(Executor):
    """Runs encodings in sequence, ``encode_s`` each, beside the forward passes."""

    def __init__(self, environment: simpy.Environment, encode_s: float) -> None:
        self._environment = environment
        self._encode_s = encode_s
        self._turn = simpy.Resource(environment)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> Generator[simpy.Event, Any, None]:
            with self._turn.request() as turn:
                yield turn
                if not future.set_running_or_notify_cancel():
                    return
                yield self._environment.timeout(self._encode_s)
                try:
                    result = fn(*args, **kwargs)
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)

        if self._encode_s:
            self._environment.process(run())
        else:
            future.set_result(fn(*args, **kwargs))
        return future


class Link:
    """One direction between two hosts: messages are delayed and keep their order, as over TCP."""

    def __init__(self, environment: simpy.Environment, one_way_s: Callable[[], float]) -> None:
        self._environment = environment
        self._one_way_s = one_way_s
        self._last_s = 0.0
        self._under_way: deque[Callable[[], object]] = deque()

    def send(self, deliver: Callable[[], object]) -> None:
        now_s = self._environment.now
        self._last_s = max(self._last_s, now_s + self._one_way_s())
        self._under_way.append(deliver)
        arrival = self._environment.timeout(self._last_s - now_s)
        # Rounding may fire the later timeout first; each delivers the oldest message.
        arrival.callbacks.append(lambda _: self._under_way.popleft()())
