"""How many threads a model computes with on a CPU."""

from __future__ import annotations

import os
import sys

_limit: int | None = None


def limit_threads(num_threads: int) -> None:
    """Set the threads of models that are loaded from now on, and torch's at once."""
    global _limit
    _limit = num_threads
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(num_threads)


def num_threads() -> int:
    """Return the limit, or OMP_NUM_THREADS, or the number of this process's cores."""
    if _limit is not None:
        return _limit
    of_environment = os.environ.get("OMP_NUM_THREADS", "")
    if of_environment.isdecimal() and int(of_environment):
        return int(of_environment)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
