"""Encode windows on an executor: live ones first, those of a slot in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class InlineExecutor(Executor):
    """Runs submitted calls at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class AudioSpan(NamedTuple):
    """The audio of a window: its first mel frame and its number of frames."""

    start_frame: int
    num_frames: int


@dataclass(slots=True, eq=False)
class _Encoding:
    """An encoding that is queued, running or done; ``earlier`` ones of its slot end first."""

    slot: int
    is_live: bool
    earlier: Sequence[Future[Any]]
    encode: Callable[[], Any] | None
    result: Future[Any]

    def run(self) -> None:
        encode, self.encode = self.encode, None  # it keeps its session alive
        try:
            wait(self.earlier)
            value = encode() if encode is not None else None
        except BaseException as error:  # as an executor does
            self.result.set_exception(error)
        else:
            self.result.set_result(value)


class Encodings:
    """Encodings of all slots that are queued or running.

    A window of live audio does not wait for those of recordings, which may be many: it is the next one. Where
    both wait, they take turns, so that recordings do not starve either.
    """

    def __init__(self, executor: Executor, wake: Callable[[], None]) -> None:
        self._executor = executor
        self._wake = wake
        self._unfinished: list[_Encoding] = []
        # By whether they are live.
        self._queues: dict[bool, deque[_Encoding]] = {True: deque(), False: deque()}
        self._is_live_next = True
        self._lock = Lock()  # guards the queues, which the executor's threads read

    @property
    def num_live(self) -> int:
        """Encodings of live audio that are neither done nor cancelled."""
        return sum(each.is_live for each in self._remaining())

    def submit(self, slot: int, encode: Callable[[], T], *, is_live: bool = False) -> Future[T]:
        """Queue an encoding; it waits for earlier ones of its slot.

        A session that has ended cannot stop its own, which may still write into the slot.
        """
        unfinished = self._remaining()
        earlier = [each for each in unfinished if each.slot == slot]
        if earlier:
            is_live = earlier[-1].is_live  # it cannot overtake them
        result = Future[T]()
        encoding = _Encoding(slot, is_live, [each.result for each in earlier], encode, result)
        unfinished.append(encoding)
        with self._lock:
            self._queues[is_live].append(encoding)
        result.add_done_callback(lambda _: self._wake())
        self._executor.submit(self._run_next)
        return result

    def _run_next(self) -> None:
        if (encoding := self._next()) is not None:
            encoding.run()

    def _next(self) -> _Encoding | None:
        """Take the next encoding that is not cancelled."""
        with self._lock:
            for kind in (self._is_live_next, not self._is_live_next):
                while self._queues[kind]:
                    encoding = self._queues[kind].popleft()
                    if encoding.result.set_running_or_notify_cancel():
                        self._is_live_next = not kind
                        return encoding
        return None

    def _remaining(self) -> list[_Encoding]:
        self._unfinished = [each for each in self._unfinished if not each.result.done()]
        return self._unfinished
