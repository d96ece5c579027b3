"""The expected gain of a split, from costs of forward passes, accepted tokens and encoder share."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import ceil, floor

# Seconds of a forward pass, by its sessions and the tokens of each.
PassTimes = Mapping[tuple[int, int], float]


def around(value: float) -> tuple[int, ...]:
    """Return the integers around a value, at least 1; a single one if it is an integer."""
    return tuple(sorted({max(1, floor(value)), max(1, ceil(value))}))


def sizes_around(batch_size: float, width: float) -> list[tuple[int, int]]:
    """Return the sizes to time, from which others are interpolated."""
    return list(product(around(batch_size), around(width)))


def pass_s(times: PassTimes, batch_size: float, width: float) -> float:
    """Return the time of a forward pass of any size, by bilinear interpolation."""
    total = 0.0
    for batch, tokens in sizes_around(batch_size, width):
        total += _weight(batch_size, batch) * _weight(width, tokens) * times[batch, tokens]
    return total


def _weight(value: float, whole: int) -> float:
    return max(0.0, 1 - abs(max(1.0, value) - whole))


def predicted_gain(
    times: PassTimes, batch_sizes: tuple[float, float], num_yielded: float, width: float
) -> float:
    """Return ``E t(B, 1) / t(B, 1 + gamma)``: the gain of candidates in tokens per time.

    Parameters
    ----------
    batch_sizes : sessions in a forward pass without candidates, and with them; times count per session.
    num_yielded : tokens of a session from a forward pass with candidates.
    width : candidates of a session in such a pass.
    """
    target_only, split = batch_sizes
    target_only_s = pass_s(times, target_only, 1) / max(1.0, target_only)
    return num_yielded * target_only_s / (pass_s(times, split, 1 + width) / max(1.0, split))


def amdahl(gain: float, fixed_share: float) -> float:
    """Return the overall gain from a gain on all but a share of the work."""
    return 1 / ((1 - fixed_share) / gain + fixed_share)
