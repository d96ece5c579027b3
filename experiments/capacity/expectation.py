"""The law of capacity: the gain of a split, from times of forward passes, accepted tokens and the encoder."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import ceil, floor

# Seconds of a forward pass, by its sessions and the tokens of each.
PassTimes = Mapping[tuple[int, int], float]


def sizes_around(batch_size: float, width: float) -> list[tuple[int, int]]:
    """Return the sizes to time, from which others are interpolated."""
    wholes = ([max(1, floor(value)), max(1, ceil(value))] for value in (batch_size, width))
    return sorted(set(product(*wholes)))


def pass_s(times: PassTimes, batch_size: float, width: float) -> float:
    """Return the time of a forward pass of any size, by bilinear interpolation."""
    return sum(
        _weight(batch_size, batch) * _weight(width, tokens) * times[batch, tokens]
        for batch, tokens in sizes_around(batch_size, width)
    )


def _weight(value: float, whole: int) -> float:
    return max(0.0, 1 - abs(max(1.0, value) - whole))


def predicted_gain(times: PassTimes, batch_size: float, num_yielded: float, width: float) -> float:
    """Return ``E t(B, 1) / t(B, 1 + gamma)``: the gain of candidates in tokens per time.

    Parameters
    ----------
    batch_size : sessions in a forward pass.
    num_yielded : tokens of a session from a forward pass with candidates.
    width : candidates of a session in such a pass.
    """
    return num_yielded * pass_s(times, batch_size, 1) / pass_s(times, batch_size, 1 + width)


def amdahl(gain: float, fixed_share: float) -> float:
    """Return the overall gain from a gain on all but a share of the work."""
    return 1 / ((1 - fixed_share) / gain + fixed_share)
