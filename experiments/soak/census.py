"""What processes hold between sessions (memory, files, tasks, slots, places), and how that grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.common.servers.forked import ForkedServer

COUNTED = ("files", "threads", "tasks", "taken_slots", "sessions")
# Pools of libraries start a thread more whenever more calls than ever happen to coincide, up to their bounds.
SPARED = {"threads": 2}


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process holds.

    Attributes
    ----------
    num_sessions : that it has had.
    heap_kib : what it has allocated, behind a garbage collection; all of it, as Python is told to use malloc.
    resident_kib : its resident memory, which also tells how the heap lies: it swings by megabytes.
    taken_slots : by sessions, at servers that have slots.
    sessions : that have a place, at servers that count them.
    """

    num_sessions: int
    heap_kib: float
    resident_kib: int
    files: int
    threads: int
    tasks: int
    taken_slots: int
    sessions: int


async def take(process: ForkedServer, num_sessions: int) -> Sample:
    """Look at a process; its own count of tasks and slots is asked of it."""
    probed = await process.probe()
    folder = Path(f"/proc/{process.pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Sample(
        num_sessions,
        heap_kib=probed["heap_bytes"] / 1024,
        resident_kib=int(status["VmRSS"].split()[0]),
        files=len(list((folder / "fd").iterdir())),
        threads=int(status["Threads"]),
        tasks=probed["tasks"],
        taken_slots=probed.get("taken_slots", 0),
        sessions=probed.get("sessions", 0),
    )


def growth_kib(samples: Sequence[Sample]) -> float:
    """Return the growth per session by least squares; the first sample is taken after the warm-up."""
    sessions = np.array([sample.num_sessions for sample in samples], float)
    heap = np.array([sample.heap_kib for sample in samples])
    slope, _ = np.polyfit(sessions, heap, 1)
    return float(slope)


def left_behind(before: Sample, after: Sample) -> dict[str, int]:
    """Tell of what there is more than before; of threads, of three or more."""
    more = {name: getattr(after, name) - getattr(before, name) for name in COUNTED}
    return {name: count for name, count in more.items() if count > SPARED.get(name, 0)}
