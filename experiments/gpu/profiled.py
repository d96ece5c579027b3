"""Which kernels a forward pass spends its time in, and how much of it none runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from experiments.gpu.passes import HELD, filled, step
from experiments.gpu.weights import Weights

SIZES = ((1, 1), (1, 8), (8, 5), (32, 5), (64, 5))
QUICK = ((1, 8),)
TIMES = 20
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Profile:
    """Kernels of one size of forward pass.

    Attributes
    ----------
    kernels : name, launches a pass and microseconds a pass, the longest first.
    num_launches : of all kernels and copies in a pass.
    idle_us : microseconds of a pass in which none runs.
    """

    shape: str
    dtype: str
    rows: int
    width: int
    kernels: tuple[tuple[str, float, float], ...]
    num_launches: float
    idle_us: float


def measure_profiles(weights: Weights, sizes: Sequence[tuple[int, int]], *, dtype: str) -> list[Profile]:
    """Profile consecutive passes of each size."""
    place, num_slots = weights.place, max(rows for rows, _ in sizes)
    decoder, found = filled(weights, num_slots, dtype=dtype), []
    for rows, width in sizes:
        run = step(decoder, rows, width)
        run()
        place.synchronize()
        activities = [ProfilerActivity.CUDA] if place.is_gpu else [ProfilerActivity.CPU]
        with profile(activities=activities) as profiler:
            for _ in range(TIMES):
                run()
            place.synchronize()
        events = [
            one
            for one in profiler.events()
            if (one.device_type == torch.autograd.DeviceType.CUDA if place.is_gpu else one.cpu_parent is None)
        ]
        spans = sorted((one.time_range.start, one.time_range.end) for one in events)
        totals: dict[str, list[float]] = {}
        for one in events:
            totals.setdefault(one.name, []).append(one.time_range.elapsed_us())
        longest = sorted(totals.items(), key=lambda item: -sum(item[1]))[:SHOWN]
        found.append(
            Profile(
                weights.name,
                dtype,
                rows,
                width,
                tuple((name[:60], len(of_one) / TIMES, sum(of_one) / TIMES) for name, of_one in longest),
                num_launches=len(events) / TIMES,
                idle_us=_idle_us(spans) / TIMES,
            )
        )
        assert all(decoder.lengths[slot] == HELD for slot in range(rows))
    torch.cuda.empty_cache() if place.is_gpu else None
    return found


def _idle_us(spans: Sequence[tuple[float, float]]) -> float:
    """Return the time between the first start and the last end that no span covers."""
    idle, covered_to = 0.0, spans[0][0] if spans else 0.0
    for start, end in spans:
        idle += max(0.0, start - covered_to)
        covered_to = max(covered_to, end)
    return idle
