"""What a split should gain: from what passes cost, what candidates yield, and what the encoder takes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import ceil, floor

# Seconds of a pass, by sessions in it and tokens of each.
PassTimes = Mapping[tuple[int, int], float]


def around(value: float) -> tuple[int, ...]:
    """Return the whole numbers on either side of a value, which are one where it is whole; at least 1."""
    return tuple(sorted({max(1, floor(value)), max(1, ceil(value))}))


def sizes_around(batch_size: float, width: float) -> list[tuple[int, int]]:
    """Return the passes that must be timed to know one of a size between them."""
    return list(product(around(batch_size), around(width)))


def pass_s(times: PassTimes, batch_size: float, width: float) -> float:
    """Return the time of a pass of any size: in between, both sizes count linearly."""
    total = 0.0
    for batch, tokens in sizes_around(batch_size, width):
        total += _weight(batch_size, batch) * _weight(width, tokens) * times[batch, tokens]
    return total


def _weight(value: float, whole: int) -> float:
    return max(0.0, 1 - abs(max(1.0, value) - whole))


def predicted_gain(
    times: PassTimes, batch_sizes: tuple[float, float], num_yielded: float, width: float
) -> float:
    """Return ``E t(B, 1) / t(B, 1 + gamma)``: tokens per time of passes with candidates over those without.

    Parameters
    ----------
    batch_sizes : sessions in a pass without candidates, and in one with them; times count per session.
    num_yielded : tokens that a pass with candidates brings a session.
    width : candidates of a session in such a pass.
    """
    alone, split = batch_sizes
    alone_s = pass_s(times, alone, 1) / max(1.0, alone)
    return num_yielded * alone_s / (pass_s(times, split, 1 + width) / max(1.0, split))


def amdahl(gain: float, fixed_share: float) -> float:
    """Return what a gain on all but a share of the work makes of the whole."""
    return 1 / ((1 - fixed_share) / gain + fixed_share)
