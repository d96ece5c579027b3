"""Measure how often drafted tokens are right, by how far ahead they were drafted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAX_DISTANCE = 64
MEMORY = 0.995  # of a judgement's weight, with every later judgement
PRIOR = 4.0  # judgements of the mean that each distance starts with


class Survival:
    """Acceptance by distance: ratios of decaying sums.

    The distance of a token is counted from the last position that was known to be right when it was drafted.
    """

    def __init__(self) -> None:
        self._kept = np.zeros(MAX_DISTANCE)
        self._judged = np.zeros(MAX_DISTANCE)

    def observe(self, distances: Sequence[int], *, num_right: int) -> None:
        """Add the tokens that a commit judges; the first ``num_right`` were right."""
        self._kept *= MEMORY ** len(distances)
        self._judged *= MEMORY ** len(distances)
        for index, distance in enumerate(distances):
            self._kept[min(distance, MAX_DISTANCE - 1)] += index < num_right
            self._judged[min(distance, MAX_DISTANCE - 1)] += 1

    @property
    def is_known(self) -> bool:
        """Whether any token was judged."""
        return bool(self._judged.any())

    @property
    def chances(self) -> tuple[float, ...]:
        """Probability that the first i tokens are all right, for i = 0..``MAX_DISTANCE``."""
        mean = self._kept.sum() / self._judged.sum()
        rates = (self._kept + PRIOR * mean) / (self._judged + PRIOR)
        return (1.0, *np.cumprod(rates).tolist())
