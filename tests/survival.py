"""Survival of candidates: how often the first of them are all right."""

from __future__ import annotations


def geometric(acceptance: float, length: int = 256) -> list[float]:
    """Return the survival of candidates with the same probability each."""
    return [acceptance**i for i in range(length)]
