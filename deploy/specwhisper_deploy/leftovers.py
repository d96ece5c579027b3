"""Ray's processes that outlive their cluster, as after ``kill -9`` of ``specwhisper serve``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psutil

RAYLET = "raylet"  # starts all processes whose title begins so:
TITLE = "ray::"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine.

    Attributes
    ----------
    title : its command line.
    parents : names of its parent, its parent's parent and so on.
    """

    pid: int
    title: str
    parents: tuple[str, ...]


def left_over(processes: Iterable[Process]) -> list[Process]:
    """Return the processes that a raylet has started which no longer runs."""
    return [each for each in processes if each.title.startswith(TITLE) and RAYLET not in each.parents]


def sentence(processes: Sequence[Process]) -> str:
    """Say which processes are left, and how to end them; they do not end by SIGTERM."""
    names = ", ".join(dict.fromkeys(each.title for each in processes))
    pids = " ".join(str(each.pid) for each in processes)
    return f"An earlier Ray on this machine was killed and has left {names}. End them by: kill -9 {pids}"


def processes() -> list[Process]:
    """Return the processes of this machine whose command lines may be read."""
    found = []
    for process in psutil.process_iter():
        try:
            title = " ".join(process.cmdline()).strip()
            parents = tuple(parent.name() for parent in process.parents())
            found.append(Process(process.pid, title, parents))
        except psutil.Error:  # it has ended, or belongs to another user
            continue
    return found
