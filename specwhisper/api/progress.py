"""A progress bar for each call of the Python API, in one display."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SPEED_PERIOD_S = 3600.0  # over which the remaining time is estimated: a window may take a minute


class _Display:
    """The process's display on standard error, there while a call has a bar in it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._progress: Progress | None = None

    def add(self, num_recordings: int | None) -> TaskID:
        """Add a bar; the first one starts the display."""
        with self._lock:
            if self._progress is None:
                self._progress = Progress(
                    TextColumn("transcribing"),
                    BarColumn(),
                    TaskProgressColumn(),
                    TextColumn("{task.fields[count]}"),
                    TimeElapsedColumn(),
                    TimeRemainingColumn(),
                    console=Console(stderr=True),
                    transient=True,
                    speed_estimate_period=SPEED_PERIOD_S,
                )
                self._progress.start()
            return self._progress.add_task("", total=num_recordings, count="")

    def update(self, bar: TaskID, completed: float, count: str) -> None:
        if self._progress is not None:
            self._progress.update(bar, completed=completed, count=count)

    def remove(self, bar: TaskID) -> None:
        """Remove a bar; the last one ends the display."""
        with self._lock:
            if self._progress is None:
                return
            self._progress.refresh()  # also a call that is shorter than the time between two
            self._progress.remove_task(bar)
            if not self._progress.task_ids:
                self._progress.stop()
                self._progress = None


_DISPLAY = _Display()  # one for the process, as its terminal: two displays would overwrite each other


class ProgressBar:
    """Progress of a call's recordings, as a context manager around it.

    Parameters
    ----------
    num_recordings : how many there are, where known.
    is_shown : ``None`` shows it if standard error is a terminal.
    """

    def __init__(self, num_recordings: int | None, is_shown: bool | None = None) -> None:
        self._num_recordings = num_recordings
        self._is_shown = Console(stderr=True).is_interactive if is_shown is None else is_shown
        self._bar: TaskID | None = None
        self._shares: dict[int, float] = {}  # done, by index, for recordings under way
        self._num_done = 0

    def __enter__(self) -> Self:
        if self._is_shown:
            self._bar = _DISPLAY.add(self._num_recordings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            _DISPLAY.remove(self._bar)

    def advance(self, index: int, share: float) -> None:
        """Note the share of a recording that is transcribed, from 0 to 1."""
        self._shares[index] = share
        self._show()

    def finish(self, index: int) -> None:
        """Note that a recording has finished or failed."""
        self._shares.pop(index, None)
        self._num_done += 1
        self._show()

    def _show(self) -> None:
        if self._bar is None:
            return
        of = "" if self._num_recordings is None else f" of {self._num_recordings}"
        completed = self._num_done + sum(self._shares.values())
        _DISPLAY.update(self._bar, completed, f"{self._num_done}{of} done")
