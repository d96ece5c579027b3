"""When to put a pass off for candidates that are on their way.

A pass that begins without them brings a session one token where it decodes by itself, and none where it does
not, instead of the several that candidates bring. Most of these are not lost: they come with the next pass,
together with what the draft has written meanwhile. Waiting, though, costs everybody time. So a pass
waits for what is all but there, and for nothing else: docs/performance-log.md has what was tried.
"""

from __future__ import annotations

from collections.abc import Iterable

from specwhisper.speculation.arrivals import Arrival

MAX_WAIT = 1 / 6  # of what a pass takes
SMOOTHING = 1 / 32


class Patience:
    """How long a pass may be put off, by what passes took of late."""

    def __init__(self) -> None:
        self._forward_ns = 0.0

    def observe(self, forward_ns: float) -> None:
        """Note a pass."""
        self._forward_ns += (SMOOTHING if self._forward_ns else 1.0) * (forward_ns - self._forward_ns)

    def begin_ns(self, could_begin_ns: int, arrivals: Iterable[Arrival]) -> float:
        """Give the moment at which a pass is to begin at the latest.

        Parameters
        ----------
        could_begin_ns : since when somebody has something to do and no pass is running.
        arrivals : of candidates that are on their way.

        Returns
        -------
        A moment by which those are there that are worth waiting for, or no longer are; ``could_begin_ns`` if
        none is.
        """
        last_ns = could_begin_ns + MAX_WAIT * self._forward_ns
        awaited = (min(arrival.bound_ns, last_ns) for arrival in arrivals if arrival.mean_ns < last_ns)
        return max(awaited, default=could_begin_ns)
