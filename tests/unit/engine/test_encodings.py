"""Encodings of live audio are the next ones, and those of a slot run in order; a GPU's are batched."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from specwhisper.engine.encodings import Encodings
from specwhisper.model.model import MicroBatcher
from tests.unit.engine.test_aligning import ManualExecutor

WAIT_S = 10.0


class Slots:
    """Encodings that run when the test says so; ``order``: the slots that were encoded."""

    def __init__(self) -> None:
        self.executor = ManualExecutor()
        self.encodings = Encodings(self.executor, lambda: None)
        self.order: list[int] = []

    def submit(self, slot: int, *, is_live: bool = False) -> Future:
        return self.encodings.submit(slot, lambda: self.order.append(slot), is_live=is_live)

    def run_all(self) -> list[int]:
        self.executor.run(len(self.executor.waiting))
        return self.order


def test_live_audio_is_next_and_takes_turns_with_recordings():
    slots = Slots()
    for slot in range(4):
        slots.submit(slot)
    slots.executor.run()
    for slot in (10, 11, 12):
        slots.submit(slot, is_live=True)
    assert slots.encodings.num_live == 3
    assert slots.run_all() == [0, 10, 1, 11, 2, 12, 3]
    assert slots.encodings.num_live == 0


def test_an_encoding_does_not_overtake_one_of_its_slot():
    slots = Slots()
    slots.submit(1)
    first = slots.submit(2)
    slots.submit(2, is_live=True).add_done_callback(lambda _: slots.order.append(first.done()))
    assert slots.run_all() == [1, 2, 2, True]


def test_a_cancelled_encoding_does_not_run():
    slots = Slots()
    kept = [slots.submit(slot, is_live=slot > 1) for slot in range(4)]
    assert kept[2].cancel()
    assert slots.encodings.num_live == 1
    assert slots.run_all() == [3, 0, 1]
    assert all(future.done() for future in kept)


def test_an_error_is_that_encodings_own():
    def fail() -> None:
        raise MemoryError("no room")

    slots = Slots()
    failed = slots.encodings.submit(0, fail)
    slots.submit(0)
    assert slots.run_all() == [0]
    with pytest.raises(MemoryError, match="no room"):
        failed.result(0)


class Work:
    """Records batches; blocks until ``may_continue`` is set; negative items fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Event()
        self.may_continue = threading.Event()

    def __call__(self, batch) -> None:
        self.batches.append([*batch])
        self.begun.set()
        assert self.may_continue.wait(WAIT_S)
        if min(batch) < 0:
            raise MemoryError(f"{min(batch)}")


def run_during_work(work: Work, items: list[int], max_items: int) -> list[Future[None]]:
    """Run item 0, and add the others one by one during its work."""
    batcher = MicroBatcher[int](work, max_items)
    with ThreadPoolExecutor(len(items) + 1) as threads:
        futures = [threads.submit(batcher.run, 0)]
        assert work.begun.wait(WAIT_S)
        for num_waiting, item in enumerate(items, start=1):
            futures.append(threads.submit(batcher.run, item))
            while len(batcher._waiting) < num_waiting:
                threading.Event().wait(0.001)
        work.may_continue.set()
    return futures


def test_a_batch_has_at_most_max_items():
    work = Work()
    for future in run_during_work(work, [*range(1, 8)], 3):
        future.result(0)
    assert work.batches == [[0], [1, 2, 3], [4, 5, 6], [7]]


def test_only_the_failing_item_raises():
    work = Work()
    first, good, bad, last = run_during_work(work, [1, -1, 2], 2)
    for future in (first, good, last):
        future.result(0)
    with pytest.raises(MemoryError, match="-1"):
        bad.result(0)
    assert work.batches == [[0], [1, -1], [1], [-1], [2]]


def test_an_interrupt_ends_all_calls_of_its_batch():
    class Interrupted(Work):
        def __call__(self, batch) -> None:
            super().__call__(batch)
            if len(batch) > 1:
                raise KeyboardInterrupt

    first, *others = run_during_work(Interrupted(), [1, 2], 2)
    first.result(0)
    for other in others:
        with pytest.raises(KeyboardInterrupt):
            other.result(0)
