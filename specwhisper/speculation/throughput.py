"""Decide whether a session without candidates takes part in a forward pass.

In ``full`` a session may always decode one token by itself. Beside sessions with candidates that may delay
them for longer than the token is worth: on a CPU a session takes a forward pass nearly as long as a block of
candidates does, while its own block would be there for the next one. On a GPU it costs next to nothing.

A session is worth its part if it brings at least the tokens that the target brings in that time on average:
the rule of largest reward per time.
"""

from __future__ import annotations

from specwhisper.speculation.forward_time import BatchTime

MEMORY = 1 - 1 / 64  # of a forward pass's weight in the rate, with every later one
MAX_PERIOD = 4  # forward passes: a longer time without one is idle


class Throughput:
    """Follows the tokens that a target commits per time.

    Parameters
    ----------
    time : of its forward passes.
    """

    def __init__(self, time: BatchTime) -> None:
        self._time = time
        self._tokens = self._period_ns = 0.0  # recent sums
        self._last_end_ns: float | None = None

    def observe(self, num_committed: int, forward_ns: float, end_ns: float) -> None:
        """Add a forward pass that ended at a time, and the tokens that it brought."""
        period_ns = forward_ns
        if self._last_end_ns is not None:
            period_ns = min(max(forward_ns, end_ns - self._last_end_ns), MAX_PERIOD * forward_ns)
        self._last_end_ns = end_ns
        self._tokens = MEMORY * self._tokens + num_committed
        self._period_ns = MEMORY * self._period_ns + period_ns

    def is_worth(self, expected_tokens: float, num_fed: int) -> bool:
        """Return whether a session that would bring so many tokens is worth its part.

        Parameters
        ----------
        num_fed : tokens that it appends to its slot.
        """
        cost_ns = self._time.session_ns + num_fed * self._time.token_ns
        return expected_tokens * self._period_ns >= cost_ns * self._tokens
