"""Medians, spread, and how sure a ratio is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specwhisper.speculation.comparison import Ratio

RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles."""

    median: float
    lower: float
    upper: float

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} ({self.lower:{spec}}-{self.upper:{spec}})"


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles around it."""
    lower, median, upper = np.quantile(np.asarray(values, float), (0.25, 0.5, 0.75))
    return Spread(float(median), float(lower), float(upper))


def ratio_of_medians(values: Sequence[float], reference: Sequence[float], *, seed: int) -> Ratio:
    """Compare two arms of one run; the interval is that of resampling.

    ``values[i]`` and ``reference[i]`` were measured in the same round, so rounds are resampled as pairs: what
    slowed a whole round down slowed both. A median forgives a round that went wrong, where ``Ratio.paired``
    has to make do with as few as two.
    """
    a, b = np.asarray(values, float), np.asarray(reference, float)
    rounds = np.random.default_rng(seed).integers(0, len(a), (RESAMPLES, len(a)))
    resampled = np.median(a[rounds], axis=1) / np.median(b[rounds], axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Ratio(float(np.median(a) / np.median(b)), float(low), float(high))
