"""Batch concurrent calls: a GPU encodes eight windows faster together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class MicroBatcher(Generic[T]):
    """Batches concurrent calls.

    The caller that holds the lock runs up to ``max_items`` waiting items.

    Parameters
    ----------
    work : processes the items of several threads. If it fails, each item is processed alone, so that only
        the calls whose item fails raise.
    max_items : most items in one call of ``work``.
    """

    def __init__(self, work: Callable[[Sequence[T]], None], max_items: int) -> None:
        self._work = work
        self._max_items = max_items
        self._waiting: deque[tuple[T, Future[None]]] = deque()
        self._turn = Lock()

    def run(self, item: T) -> None:
        """Return when this thread or another one has processed the item; raise its error."""
        done = Future[None]()
        self._waiting.append((item, done))
        with self._turn:
            while not done.done():
                num_items = min(len(self._waiting), self._max_items)
                batch = [self._waiting.popleft() for _ in range(num_items)]
                try:
                    self._process(batch)
                except BaseException as error:  # Ctrl-C: other threads must not wait forever
                    for _, other in batch:
                        if not other.done():
                            other.set_exception(error)
                    raise
        done.result()

    def _process(self, batch: Sequence[tuple[T, Future[None]]]) -> None:
        has_failed = False
        try:
            self._work([item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            has_failed = True
        for one in batch:  # outside the except block: the error keeps the memory of the failed call alive
            if has_failed:
                self._process([one])
            else:
                one[1].set_result(None)
