"""What several threads bring while one works is worked on at once."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from specwhisper.model.micro_batcher import Gathering

WAIT_S = 10.0


class Work:
    """Notes its batches; the first one goes on when ``go_on`` is set, and items below zero fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, batch) -> None:
        self.batches.append([*batch])
        self.begun.set()
        assert self.go_on.wait(WAIT_S)
        if min(batch) < 0:
            raise MemoryError(f"{min(batch)}")


def brought_during_work(work: Work, items: list[int], max_items: int) -> list[Future[None]]:
    """Bring item 0, and the others one by one while that is worked on."""
    gathering = Gathering[int](work, max_items)
    with ThreadPoolExecutor(len(items) + 1) as threads:
        futures = [threads.submit(gathering.bring, 0)]
        assert work.begun.wait(WAIT_S)
        for num_waiting, item in enumerate(items, start=1):
            futures.append(threads.submit(gathering.bring, item))
            while len(gathering._waiting) < num_waiting:
                threading.Event().wait(0.001)
        work.go_on.set()
    return futures


def test_one_goes_alone():
    work = Work()
    work.go_on.set()
    Gathering[int](work, 8).bring(3)
    assert work.batches == [[3]]


def test_those_that_come_during_work_are_next_together_in_their_order():
    work = Work()
    for future in brought_during_work(work, [5, 3, 4], 8):
        future.result(0)
    assert work.batches == [[0], [5, 3, 4]]


def test_no_more_at_once_than_is_allowed():
    work = Work()
    for future in brought_during_work(work, [*range(1, 8)], 3):
        future.result(0)
    assert work.batches == [[0], [1, 2, 3], [4, 5, 6], [7]]


def test_one_alone_fails():
    work = Work()
    first, good, bad, last = brought_during_work(work, [1, -1, 2], 2)
    for future in (first, good, last):
        future.result(0)
    with pytest.raises(MemoryError, match="-1"):
        bad.result(0)
    assert work.batches == [[0], [1, -1], [1], [-1], [2]]
