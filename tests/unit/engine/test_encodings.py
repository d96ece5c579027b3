"""Encodings of live audio are the next ones; those of a slot run in order."""

from collections.abc import Callable
from concurrent.futures import Executor, Future

import pytest

from specwhisper.engine.encodings import Encodings


class Queued(Executor):
    """Runs calls when the test says so, one after the other."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def submit(self, fn, /, *args, **kwargs) -> Future:
        self.calls.append(fn)
        return Future()

    def run(self, num_calls: int | None = None) -> None:
        for _ in range(len(self.calls) if num_calls is None else num_calls):
            self.calls.pop(0)()


@pytest.fixture
def executor() -> Queued:
    return Queued()


@pytest.fixture
def encodings(executor) -> Encodings:
    return Encodings(executor, lambda: None)


@pytest.fixture
def order(encodings) -> list[int]:
    """Return the slots that were encoded."""
    return []


def submit(encodings: Encodings, order: list[int], slot: int, *, is_live: bool = False) -> Future:
    return encodings.submit(slot, lambda: order.append(slot), is_live=is_live)


def test_live_audio_is_next_and_takes_turns_with_recordings(executor, encodings, order):
    for slot in range(4):
        submit(encodings, order, slot)
    executor.run(1)
    for slot in (10, 11, 12):
        submit(encodings, order, slot, is_live=True)
    assert encodings.num_live == 3
    executor.run()
    assert order == [0, 10, 1, 11, 2, 12, 3]
    assert encodings.num_live == 0


def test_an_encoding_does_not_overtake_one_of_its_slot(executor, encodings, order):
    submit(encodings, order, 1)
    first = submit(encodings, order, 2)
    later = submit(encodings, order, 2, is_live=True)
    later.add_done_callback(lambda _: order.append(first.done()))
    executor.run()
    assert order == [1, 2, 2, True]


def test_a_cancelled_encoding_does_not_run(executor, encodings, order):
    kept = [submit(encodings, order, slot, is_live=slot > 1) for slot in range(4)]
    assert kept[2].cancel()
    assert encodings.num_live == 1
    executor.run()
    assert order == [3, 0, 1]
    assert all(future.done() for future in kept)


def test_an_error_is_that_encodings_own(executor, encodings, order):
    def fail() -> None:
        raise MemoryError("no room")

    failed = encodings.submit(0, fail)
    submit(encodings, order, 0)
    executor.run()
    assert order == [0]
    with pytest.raises(MemoryError, match="no room"):
        failed.result(0)
