"""Estimate when a draft's next candidates arrive.

A draft writes one token after another until a commit corrects it; then it starts again after the correction.
So candidates arrive in chains. The first block of a chain arrives one turnaround after the correction: the
way to the draft, its drafting, and the way back. Each later block arrives a few draft steps after the one
before.
"""

from __future__ import annotations

SMOOTHING, SPREAD_SMOOTHING = 1 / 8, 1 / 4  # as in TCP's estimate of round trips (RFC 6298)
NUM_SPREADS = 2


class Smoothed:
    """A recent mean, and the mean distance of single values from it."""

    def __init__(self) -> None:
        self.mean: float | None = None
        self.spread = 0.0

    def observe(self, value: float) -> None:
        """Add a value."""
        if self.mean is None:
            self.mean, self.spread = value, value / 2
            return
        off = value - self.mean
        self.spread += SPREAD_SMOOTHING * (abs(off) - self.spread)
        self.mean += SMOOTHING * off


class Arrivals:
    """Follows the chains of one session's draft."""

    def __init__(self) -> None:
        self.turnaround = Smoothed()
        self.step = Smoothed()  # between two candidates of a chain
        self._block = 1  # tokens of the newest block
        self._end = 0  # position after the newest candidate, or after the correction
        self._since_ns: float | None = None  # when that was; None if nothing is known in this window
        self._has_begun = False  # whether candidates of the chain have arrived

    def open(self) -> None:
        """Begin a window; earlier chains do not predict its first candidates."""
        self._end, self._since_ns = 0, None

    def restart(self, end: int, now_ns: float) -> None:
        """Begin a chain at position ``end``: the correction before it is sent now."""
        if self._since_ns is not None:
            self._end, self._since_ns, self._has_begun = end, now_ns, False

    def observe(self, end: int, num_tokens: int, now_ns: float) -> None:
        """Add a block of the chain whose last candidate is before position ``end``."""
        if end <= self._end:
            return
        if self._since_ns is not None:
            if self._has_begun:
                self.step.observe((now_ns - self._since_ns) / (end - self._end))
            else:
                self.turnaround.observe(now_ns - self._since_ns)
        self._block = num_tokens
        self._end, self._since_ns, self._has_begun = end, now_ns, True

    def bound_ns(self, position: int) -> float | None:
        """Return when a position's candidate has arrived or is late, if that is known."""
        if self._since_ns is None:
            return None
        num_blocks = max(1, -(-(position + 1 - self._end) // self._block))
        mean_ns, spread_ns = self._since_ns, 0.0
        if not self._has_begun:
            if self.turnaround.mean is None:
                return None
            mean_ns, spread_ns = mean_ns + self.turnaround.mean, self.turnaround.spread
            num_blocks -= 1
        if num_blocks:
            if self.step.mean is None:
                return None
            mean_ns += num_blocks * self._block * self.step.mean
            spread_ns += self._block * self.step.spread
        return mean_ns + NUM_SPREADS * spread_ns
