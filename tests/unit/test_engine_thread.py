"""An engine in its thread: nothing is lost, nobody waits for ever, and idleness costs nothing."""

from __future__ import annotations

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
    """Gives back what was put in, one item per step."""

    wake_after_s = 0.0

    def __init__(self) -> None:
        self.items: list[tuple[str, object]] = []
        self.num_steps = 0
        self.gate = threading.Event()
        self.gate.set()

    @property
    def has_work(self) -> bool:
        return bool(self.items)

    def step(self):
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
        heard = {name: asyncio.Queue() for name in "ab"}
        for name, queue in heard.items():
            thread.subscribe(name, queue.put_nowait)
        items = [("a", 1), ("b", 2), ("nobody", 3), ("a", 4)]
        thread.post(lambda: engine.items.extend(items))
        assert [await heard["a"].get(), await heard["a"].get()] == [1, 4]
        assert await heard["b"].get() == 2
        thread.unsubscribe("a")
        thread.post(lambda: engine.items.extend([("a", 5), ("b", 6)]))
        assert await heard["b"].get() == 6
        assert heard["a"].empty()


async def test_an_observer_sees_every_step_and_stands_in_nobodys_way():
    engine, seen, heard = Echo(), [], asyncio.Queue()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    def observe(events) -> None:
        seen.extend(events)
        raise RuntimeError("a defect")

    thread = EngineThread("echo", observe=observe)
    thread.start(engine)
    thread.subscribe("a", heard.put_nowait)
    thread.post(lambda: engine.items.extend([("a", 1), ("nobody", 2), ("a", 3)]))
    assert [await heard.get(), await heard.get()] == [1, 3]
    await thread.stop()
    assert seen == [("a", 1), ("nobody", 2), ("a", 3)]


async def test_a_call_gives_the_result_or_the_error():
    async with running(Echo()) as thread:
        assert await thread.call(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await thread.call(lambda: 1 // 0)


async def test_a_cancelled_call_is_not_carried_out_once_it_is_too_late():
    engine = Echo()
    async with running(engine) as thread:
        await thread.call(lambda: None)
        engine.gate.clear()
        thread.post(lambda: engine.items.append(("a", 1)))  # now in its step
        carried_out = []
        call = asyncio.create_task(thread.call(lambda: carried_out.append(1)))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        engine.gate.set()
        await thread.call(lambda: None)
        assert carried_out == []


async def test_an_action_that_fails_takes_no_other_with_it(caplog):
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


async def test_an_engine_that_fails_tells_everybody_and_goes_on(caplog):
    engine = Echo()
    async with running(engine) as thread:
        heard = {name: asyncio.Queue() for name in "ab"}
        for name, queue in heard.items():
            thread.subscribe(name, queue.put_nowait)
        error = RuntimeError("a defect")
        thread.post(lambda: engine.items.extend([("a", error), ("b", 7)]))
        assert await heard["a"].get() == await heard["b"].get() == Failed(error)
        assert await heard["b"].get() == 7
    assert "engine failed" in caplog.messages


class Patient(Echo):
    """Has work only from some moment on."""

    begin_s = math.inf

    @property
    def has_work(self) -> bool:
        return super().has_work and time.monotonic() >= self.begin_s

    @property
    def wake_after_s(self) -> float:
        return max(0.0, min(600.0, self.begin_s - time.monotonic())) if self.items else 0.0

    def step(self):
        return super().step() if self.has_work else []


async def test_work_that_is_put_off_is_done_when_its_time_has_come():
    engine = Patient()
    async with running(engine) as thread:
        heard = asyncio.Queue()
        thread.subscribe("a", heard.put_nowait)
        await thread.call(lambda: engine.items.append(("a", 1)))
        await thread.call(lambda: engine.items.append(("a", 2)))  # is carried out at once all the same
        assert heard.empty()
        await thread.call(lambda: setattr(engine, "begin_s", time.monotonic() + 0.02))
        assert [await heard.get(), await heard.get()] == [1, 2]  # though nothing woke the thread


class Fleeting(Echo):
    """Puts its items off until it was asked for work once: a hold that ends right behind that question."""

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


async def test_a_hold_that_ends_while_the_thread_asks_for_work_loses_nothing():
    engine = Fleeting()
    async with running(engine) as thread:
        heard = asyncio.Queue()
        thread.subscribe("a", heard.put_nowait)
        await thread.call(lambda: engine.items.append(("a", 1)))
        async with asyncio.timeout(30):
            assert await heard.get() == 1


async def test_a_thread_that_puts_off_work_can_be_stopped():
    engine = Patient()
    async with running(engine) as thread:
        await thread.call(lambda: engine.items.append(("a", 1)))
    assert engine.num_steps == 0


class Doubtful(Echo):
    """Cannot even tell whether it has work, as long as it has a bad item."""

    @property
    def has_work(self) -> bool:
        for _, item in self.items:
            if isinstance(item, Exception):
                raise item
        return super().has_work


async def test_an_engine_that_cannot_tell_its_work_is_not_the_end_of_its_thread(caplog):
    engine = Doubtful()
    async with running(engine) as thread:
        heard = asyncio.Queue()
        thread.subscribe("a", heard.put_nowait)
        error = RuntimeError("a defect")
        thread.post(lambda: engine.items.append(("a", error)))
        assert await heard.get() == Failed(error)
        thread.post(engine.items.clear)
        thread.post(lambda: engine.items.append(("a", 7)))
        while (event := await heard.get()) != 7:
            assert event == Failed(error)
    assert "engine failed" in caplog.messages


async def test_stopping_carries_out_what_was_posted_and_takes_no_more():
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


async def test_idleness_takes_no_steps():
    engine = Echo()
    async with running(engine) as thread:
        for _ in range(3):
            thread.wake()
        for number in range(1, 6):
            await thread.call(lambda: None)
            assert engine.num_steps <= number
