"""Time on a device: what it is busy for, and what a caller waits for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch

from experiments.gpu.weights import Place


def busy_s(run: Callable[[], object], place: Place, times: int) -> list[float]:
    """Time runs that are asked for one behind the other, each by itself, after one to warm up."""
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
    """Time runs from the call to the moment at which their results are there."""
    run()
    return [_waited_s(run, place) for _ in range(times)]


def _waited_s(run: Callable[[], object], place: Place) -> float:
    place.synchronize()
    started_s = time.perf_counter()
    run()
    place.synchronize()
    return time.perf_counter() - started_s


def median_s(run: Callable[[], object], place: Place, times: int = 20) -> float:
    """Return the median that a device is busy for."""
    return statistics.median(busy_s(run, place, times))
