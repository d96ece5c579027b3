"""An engine in its thread: no event is lost, no session waits forever."""

import asyncio
import math
import threading
import time
from contextlib import asynccontextmanager

import pytest

from specwhisper.engine.engine_thread import EngineThread
from specwhisper.errors import ServerDraining
from specwhisper.types import Failed


class Echo:
    """Returns its items as events, one per step."""

    wake_after_s = 0.0

    def __init__(self) -> None:
        self.items: list[tuple[str, object]] = []
        self.num_steps = 0
        self.gate = threading.Event()
        self.gate.set()
        self.in_step = threading.Event()

    @property
    def has_work(self) -> bool:
        return bool(self.items)

    def step(self):
        self.in_step.set()
        self.gate.wait(30)
        self.num_steps += 1
        if not self.items:
            return []
        session, item = self.items.pop(0)
        if isinstance(item, Exception):
            raise item
        return [(session, item)]


@asynccontextmanager
async def running(engine: Echo):
    thread = EngineThread("echo")
    thread.start(engine)
    try:
        yield thread
    finally:
        engine.gate.set()
        await thread.stop()


async def test_each_session_gets_its_events_in_order():
    engine = Echo()
    async with running(engine) as thread:
        events = {name: asyncio.Queue() for name in "ab"}
        for name, queue in events.items():
            thread.subscribe(name, queue.put_nowait)
        items = [("a", 1), ("b", 2), ("unknown", 3), ("a", 4)]
        thread.post(lambda: engine.items.extend(items))
        assert [await events["a"].get(), await events["a"].get()] == [1, 4]
        assert await events["b"].get() == 2
        thread.unsubscribe("a")
        thread.post(lambda: engine.items.extend([("a", 5), ("b", 6)]))
        assert await events["b"].get() == 6
        assert events["a"].empty()


async def test_an_observer_sees_every_step_and_delays_no_event():
    engine, seen, events = Echo(), [], asyncio.Queue()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    def observe(events) -> None:
        seen.extend(events)
        raise RuntimeError("a defect")

    thread = EngineThread("echo", observe=observe)
    thread.start(engine)
    thread.subscribe("a", events.put_nowait)
    thread.post(lambda: engine.items.extend([("a", 1), ("unknown", 2), ("a", 3)]))
    assert [await events.get(), await events.get()] == [1, 3]
    await thread.stop()
    assert seen == [("a", 1), ("unknown", 2), ("a", 3)]


async def test_a_call_returns_the_result_or_raises_the_error():
    async with running(Echo()) as thread:
        assert await thread.call(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await thread.call(lambda: 1 // 0)


async def test_a_cancelled_call_does_not_run():
    engine = Echo()
    async with running(engine) as thread:
        await thread.call(lambda: None)
        engine.gate.clear()
        engine.in_step.clear()
        thread.post(lambda: engine.items.append(("a", 1)))
        assert await asyncio.to_thread(engine.in_step.wait, 30)
        carried_out = []
        call = asyncio.create_task(thread.call(lambda: carried_out.append(1)))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        engine.gate.set()
        await thread.call(lambda: None)
        assert carried_out == []


async def test_an_action_that_fails_stops_no_other(caplog):
    engine = Echo()
    async with running(engine) as thread:
        engine.gate.clear()
        thread.post(lambda: engine.items.append(("a", 1)))
        done = []
        for action in (lambda: done.append(1), lambda: 1 // 0, lambda: done.append(2)):
            thread.post(action)
        engine.gate.set()
        await thread.call(lambda: None)
    assert done == [1, 2]
    assert "action failed" in caplog.messages


class Undecided(Echo):
    """Fails in ``has_work`` once it has a bad item."""

    @property
    def has_work(self) -> bool:
        if self.items and isinstance(self.items[0][1], Exception):
            self.step()
        return super().has_work


@pytest.mark.parametrize("kind", [Echo, Undecided])
async def test_an_engine_that_fails_fails_all_sessions_and_continues(kind, caplog):
    engine = kind()
    async with running(engine) as thread:
        events = {name: asyncio.Queue() for name in "ab"}
        for name, queue in events.items():
            thread.subscribe(name, queue.put_nowait)
        error = RuntimeError("a defect")
        await thread.call(lambda: engine.items.extend([("a", error), ("b", 7)]))
        assert await events["a"].get() == await events["b"].get() == Failed(error)
        assert await events["b"].get() == 7
    assert "engine failed" in caplog.messages


class Delayed(Echo):
    """Has no work before a certain time."""

    begin_s = math.inf

    @property
    def has_work(self) -> bool:
        return super().has_work and time.monotonic() >= self.begin_s

    @property
    def wake_after_s(self) -> float:
        return max(0.0, min(600.0, self.begin_s - time.monotonic())) if self.items else 0.0

    def step(self):
        return super().step() if self.has_work else []


async def test_delayed_work_is_done_at_its_time():
    engine = Delayed()
    async with running(engine) as thread:
        events = asyncio.Queue()
        thread.subscribe("a", events.put_nowait)
        await thread.call(lambda: engine.items.append(("a", 1)))
        await thread.call(lambda: engine.items.append(("a", 2)))  # runs at once
        assert events.empty()
        await thread.call(lambda: setattr(engine, "begin_s", time.monotonic() + 0.02))
        assert [await events.get(), await events.get()] == [1, 2]  # without waking the thread


class Fleeting(Echo):
    """Delays its items until ``has_work`` was read once."""

    is_over = False

    @property
    def has_work(self) -> bool:
        was_over = self.is_over
        self.is_over = bool(self.items)
        return was_over

    @property
    def wake_after_s(self) -> float:
        return 1e-6 if self.items and not self.is_over else 0.0

    def step(self):
        return super().step() if self.is_over else []


async def test_a_delay_that_ends_while_the_thread_checks_for_work_loses_nothing():
    engine = Fleeting()
    async with running(engine) as thread:
        events = asyncio.Queue()
        thread.subscribe("a", events.put_nowait)
        await thread.call(lambda: engine.items.append(("a", 1)))
        async with asyncio.timeout(30):
            assert await events.get() == 1


async def test_stopping_runs_posted_actions_and_refuses_more():
    engine = Echo()
    async with running(engine) as thread:
        await thread.call(lambda: None)
        engine.gate.clear()
        thread.post(lambda: engine.items.append(("a", 1)))
        pending = asyncio.create_task(thread.call(lambda: "done"))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(thread.stop())
        await asyncio.sleep(0)
        assert not thread.post(lambda: None)
        with pytest.raises(ServerDraining):
            await thread.call(lambda: None)
        engine.gate.set()
        assert await pending == "done"
        await stopping


async def test_a_thread_that_never_started_stops():
    thread = EngineThread("idle")
    await thread.stop()
    with pytest.raises(ServerDraining):
        await thread.call(lambda: None)


async def test_an_idle_engine_takes_no_steps():
    engine = Echo()
    async with running(engine) as thread:
        for _ in range(3):
            thread.wake()
        for number in range(1, 6):
            await thread.call(lambda: None)
            assert engine.num_steps <= number
