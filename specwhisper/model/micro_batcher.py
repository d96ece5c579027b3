"""Do at once what several threads bring: a GPU encodes eight windows sooner than one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Gathering(Generic[T]):
    """Whoever's turn it is works for all who wait by then.

    Parameters
    ----------
    work : takes what several threads brought. If it fails, each of them is worked for alone, so that one
        raises and the others do not.
    max_items : how many are worked on at once.
    """

    def __init__(self, work: Callable[[Sequence[T]], None], max_items: int) -> None:
        self._work = work
        self._max_items = max_items
        self._waiting: deque[tuple[T, Future[None]]] = deque()
        self._turn = Lock()

    def bring(self, item: T) -> None:
        """Return when the item has been worked on, by this thread or another."""
        done = Future[None]()
        self._waiting.append((item, done))
        with self._turn:
            while not done.done():
                num_items = min(len(self._waiting), self._max_items)
                self._work_on([self._waiting.popleft() for _ in range(num_items)])
        done.result()

    def _work_on(self, batch: Sequence[tuple[T, Future[None]]]) -> None:
        has_failed = False
        try:
            self._work([item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            has_failed = True
        for one in batch:  # here, and not above: an error keeps all that its work had allocated
            if has_failed:
                self._work_on([one])
            else:
                one[1].set_result(None)
