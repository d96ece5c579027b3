"""Time on a device: how long it is busy, and how long a caller waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch

from experiments.gpu.weights import Place


def busy_s(run: Callable[[], object], place: Place, times: int) -> list[float]:
    """Return device times of consecutive runs, after one to warm up."""
    run()
    if not place.is_gpu:
        return [_waited_s(run, place) for _ in range(times)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    place.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    place.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairwise(marks)]


def waited_s(run: Callable[[], object], place: Place, times: int) -> list[float]:
    """Return times from call to result, after one run to warm up."""
    run()
    return [_waited_s(run, place) for _ in range(times)]


def _waited_s(run: Callable[[], object], place: Place) -> float:
    place.synchronize()
    started_s = time.perf_counter()
    run()
    place.synchronize()
    return time.perf_counter() - started_s


def median_s(run: Callable[[], object], place: Place, times: int = 20) -> float:
    """Return the median device time of a run."""
    return statistics.median(busy_s(run, place, times))
