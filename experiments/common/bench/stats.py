"""Medians, quartiles and ratios with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specwhisper_client.cli.advice import Ratio

RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    lower: float
    upper: float

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} ({self.lower:{spec}}-{self.upper:{spec}})"


def spread(values: Sequence[float]) -> Spread:
    lower, median, upper = np.quantile(np.asarray(values, float), (0.25, 0.5, 0.75))
    return Spread(float(median), float(lower), float(upper))


def ratio_of_medians(values: Sequence[float], reference: Sequence[float], *, seed: int) -> Ratio:
    """Return the ratio of two arms' medians with a bootstrap interval.

    ``values[i]`` and ``reference[i]`` come from the same round and are resampled as a pair, since a slow
    round slows both. A median is robust against an outlier; ``Ratio.paired`` also takes as few as two rounds.
    """
    a, b = np.asarray(values, float), np.asarray(reference, float)
    rounds = np.random.default_rng(seed).integers(0, len(a), (RESAMPLES, len(a)))
    resampled = np.median(a[rounds], axis=1) / np.median(b[rounds], axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Ratio(float(np.median(a) / np.median(b)), float(low), float(high), len(a))
