"""Processes of Ray that outlive their cluster.

They remain, for example, after ``kill -9`` of ``specwhisper serve``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psutil

RAYLET = "raylet"  # the parent of all processes whose command line begins with:
TITLE = "ray::"


def is_orphan(command_line: str, ancestors: Sequence[str]) -> bool:
    """Return whether a process was started by a raylet that no longer runs.

    Parameters
    ----------
    ancestors : names of its parent, its parent's parent and so on.
    """
    return command_line.startswith(TITLE) and RAYLET not in ancestors


def find_orphans() -> dict[int, str]:
    """Return Ray's orphaned processes on this machine: command lines by process id."""
    orphans = {}
    for process in psutil.process_iter():
        try:
            command_line = " ".join(process.cmdline()).strip()
            if is_orphan(command_line, [parent.name() for parent in process.parents()]):
                orphans[process.pid] = command_line
        except psutil.Error:  # it has ended, or belongs to another user
            continue
    return orphans


def describe_orphans(orphans: Mapping[int, str]) -> str:
    """Return a sentence that names orphaned processes and how to end them.

    They ignore SIGTERM.
    """
    names = ", ".join(dict.fromkeys(orphans.values()))
    pids = " ".join(map(str, orphans))
    return f"An earlier Ray on this machine was killed and has left {names}. End them by: kill -9 {pids}"
