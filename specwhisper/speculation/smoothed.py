"""A mean that follows recent values."""

from __future__ import annotations

SMOOTHING = 1 / 8  # as in TCP's estimate of round trips (RFC 6298)


class Smoothed:
    """A recent mean; ``None`` before the first value."""

    def __init__(self) -> None:
        self.mean: float | None = None

    def observe(self, value: float) -> None:
        """Add a value."""
        self.mean = value if self.mean is None else self.mean + SMOOTHING * (value - self.mean)
