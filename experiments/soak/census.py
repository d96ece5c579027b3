"""Memory, files, tasks and slots that processes hold between sessions, and their growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.common.servers.forked import ForkedServer

COUNTED = ("files", "threads", "tasks", "taken_slots", "sessions")
# Pools start a thread more whenever more calls than ever happen to coincide, up to their bounds.
SPARED = {"threads": 8}


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of one process.

    Attributes
    ----------
    num_sessions : that it has had.
    heap_kib : allocated memory after a garbage collection; complete, since Python uses malloc.
    resident_kib : resident memory; it also depends on the heap's fragmentation and varies by megabytes.
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


def leaked(before: Sample, after: Sample) -> dict[str, int]:
    """Return what has grown; of threads, by more than a pool gains by chance."""
    more = {name: getattr(after, name) - getattr(before, name) for name in COUNTED}
    return {name: count for name, count in more.items() if count > SPARED.get(name, 0)}
