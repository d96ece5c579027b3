"""Encode windows on an executor, in order for each slot."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class AudioSpan(NamedTuple):
    """The audio of a window: its first mel frame and its number of frames."""

    start_frame: int
    num_frames: int


class Encodings:
    """Encodings of all slots that are queued or running.

    Parameters
    ----------
    wake : called, from any thread, when an encoding has ended.
    """

    def __init__(self, executor: Executor, wake: Callable[[], None]) -> None:
        self._executor = executor
        self._wake = wake
        self._unfinished: list[tuple[int, Future[Any]]] = []  # each with its slot

    @property
    def num_unfinished(self) -> int:
        """Encodings that are neither done nor cancelled."""
        return len(self._remaining())

    def submit(self, slot: int, encode: Callable[[], T]) -> Future[T]:
        """Queue an encoding; it waits for earlier ones of its slot.

        A session that has ended cannot stop its own, which may still write into the slot.
        """
        unfinished = self._remaining()
        earlier = [encoding for owner, encoding in unfinished if owner == slot]

        def run() -> T:
            wait(earlier)
            return encode()

        encoding = self._executor.submit(run)
        unfinished.append((slot, encoding))
        encoding.add_done_callback(lambda _: self._wake())
        return encoding

    def _remaining(self) -> list[tuple[int, Future[Any]]]:
        self._unfinished = [each for each in self._unfinished if not each[1].done()]
        return self._unfinished
