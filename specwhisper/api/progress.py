"""A progress bar for each call of the Python API, in one display."""

from __future__ import annotations

from functools import cache
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


_lock = Lock()  # while bars come and go


@cache
def _display() -> Progress:
    """Return the process's display on standard error: two would overwrite each other."""
    return Progress(
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
            with _lock:
                self._bar = _display().add_task("", total=self._num_recordings, count="")
                _display().start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with _lock:
                _display().refresh()  # also a call that is shorter than the time between two
                _display().remove_task(self._bar)
                if not _display().task_ids:
                    _display().stop()

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
        _display().update(self._bar, completed=completed, count=f"{self._num_done}{of} done")
