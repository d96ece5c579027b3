"""Time on a device: how long it is busy, and how long a caller waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median

import torch

from experiments.gpu.weights import Place


def busy_ms(run: Callable[[], object], place: Place, times: int) -> float:
    """Return the median device time of consecutive runs, after one to warm up."""
    if not place.is_gpu:
        return waited_ms(run, place, times)
    run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    place.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    place.synchronize()
    return median(begin.elapsed_time(end) for begin, end in pairwise(marks))


def waited_ms(run: Callable[[], object], place: Place, times: int) -> float:
    """Return the median time from call to result, after one run to warm up."""
    run()
    found = []
    for _ in range(times):
        place.synchronize()
        started_s = time.perf_counter()
        run()
        place.synchronize()
        found.append((time.perf_counter() - started_s) * 1e3)
    return median(found)
