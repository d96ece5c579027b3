"""Decide when a forward pass waits for candidates that are about to arrive.

A forward pass without them brings a session one token if the target decodes by itself, and none otherwise,
instead of the several tokens that candidates bring. Most of these are not lost: they come with the next
forward pass, together with those drafted meanwhile. Waiting delays every session, so a forward pass waits
only for candidates that are almost there; docs/performance-log.md has the alternatives that were measured.
"""

from __future__ import annotations

from collections.abc import Iterable

from specwhisper.speculation.arrivals import Arrival

MAX_DELAY = 1 / 6  # of the time of a forward pass
SMOOTHING = 1 / 32


class BatchingDelay:
    """Limits the delay of a forward pass to a share of the recent forward time."""

    def __init__(self) -> None:
        self._forward_ns = 0.0

    def observe(self, forward_ns: float) -> None:
        """Add the time of a forward pass."""
        self._forward_ns += (SMOOTHING if self._forward_ns else 1.0) * (forward_ns - self._forward_ns)

    def start_ns(self, ready_ns: int, arrivals: Iterable[Arrival]) -> float:
        """Return the latest time at which the next forward pass should start.

        Parameters
        ----------
        ready_ns : since when a session is runnable and no forward pass runs.
        arrivals : of candidates on their way.

        Returns
        -------
        The time by which the candidates worth waiting for have arrived, or are late; ``ready_ns`` if there
        are none.
        """
        last_ns = ready_ns + MAX_DELAY * self._forward_ns
        awaited = (min(arrival.bound_ns, last_ns) for arrival in arrivals if arrival.mean_ns < last_ns)
        return max(awaited, default=ready_ns)
