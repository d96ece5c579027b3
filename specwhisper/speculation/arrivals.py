"""When candidates will be there that a draft has not sent yet.

A draft writes one token after the other until it hears that one of them was wrong; then it begins anew behind
the correction. So its candidates come in chains: the first block a turnaround after the chain's beginning,
which is a way to the draft and one back with the drafting between them, and then each a few draft steps after
the last.
"""

from __future__ import annotations

from typing import NamedTuple

SMOOTHING, SPREAD_SMOOTHING = 1 / 8, 1 / 4  # as TCP guesses its round trips (RFC 6298)
NUM_SPREADS = 2


class Arrival(NamedTuple):
    """When candidates will be there: on average, and seldom later than."""

    mean_ns: float
    bound_ns: float


class Smoothed:
    """A mean of late, and how far single values lie from it."""

    def __init__(self) -> None:
        self.mean: float | None = None
        self.spread = 0.0

    def observe(self, value: float) -> None:
        """Note a value."""
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
        self._block = 1  # candidates that came together last
        self._end = 0  # position behind the last candidate that came, or behind the correction
        self._since_ns: float | None = None  # when that was; None while nothing can be told
        self._is_begun = False  # whether candidates of the chain have come

    def open(self) -> None:
        """Begin a window: when its first candidates come is not told by those of the last one."""
        self._end, self._since_ns = 0, None

    def restart(self, end: int, now_ns: float) -> None:
        """Begin a chain behind ``end``: the draft is told now what makes it begin anew."""
        if self._since_ns is not None:
            self._end, self._since_ns, self._is_begun = end, now_ns, False

    def observe(self, end: int, num_tokens: int, now_ns: float) -> None:
        """Note a block of the chain that reaches up to position ``end``."""
        if end <= self._end:
            return
        if self._since_ns is not None:
            if self._is_begun:
                self.step.observe((now_ns - self._since_ns) / (end - self._end))
            else:
                self.turnaround.observe(now_ns - self._since_ns)
        self._block = num_tokens
        self._end, self._since_ns, self._is_begun = end, now_ns, True

    def arrival(self, position: int) -> Arrival | None:
        """Tell when the candidate for a position will be there; ``None`` while nothing is known."""
        if self._since_ns is None:
            return None
        num_blocks = max(1, -(-(position + 1 - self._end) // self._block))
        mean_ns, spread_ns = self._since_ns, 0.0
        if not self._is_begun:
            if self.turnaround.mean is None:
                return None
            mean_ns, spread_ns = mean_ns + self.turnaround.mean, self.turnaround.spread
            num_blocks -= 1
        if num_blocks:
            if self.step.mean is None:
                return None
            mean_ns += num_blocks * self._block * self.step.mean
            spread_ns += self._block * self.step.spread
        return Arrival(mean_ns, mean_ns + NUM_SPREADS * spread_ns)
