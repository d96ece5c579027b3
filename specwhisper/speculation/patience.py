"""When to put a pass off for candidates that are on their way.

A pass costs a part that is the same for one session and for many: the weights are read once. If it is begun
whenever somebody's candidates are there, sessions fall into two groups that take turns, one on its way while
the other is verified, and the constant part is paid twice. Waiting for the others pays as long as it takes
less than that part.

Where all are on their way, the target may decode a token of each by itself instead. If that takes t, what is
on its way arrives within r and passes yield E tokens, it delays them by t - r and saves one token of E, which
is worth t / E: it does not pay while r < t (1 - 1 / E).
"""

from __future__ import annotations

from collections.abc import Iterable

from specwhisper.speculation.arrivals import Arrival

PASS_DECAY = 1 - 1 / 256  # of a pass's weight with every later one
MIN_VARIANCE = 1.0  # of the tokens of passes, below which no line is drawn through them
YIELD_SMOOTHING = 1 / 32


class PassTime:
    """What passes take by their tokens: the line of least squares, in which late ones count more."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean_tokens = 0.0
        self._mean_ns = 0.0
        self._variance = 0.0
        self._covariance = 0.0

    def observe(self, num_tokens: int, forward_ns: float) -> None:
        """Note a pass."""
        self._weight = PASS_DECAY * self._weight + 1
        gain = 1 / self._weight
        tokens_off, ns_off = num_tokens - self._mean_tokens, forward_ns - self._mean_ns
        self._mean_tokens += gain * tokens_off
        self._mean_ns += gain * ns_off
        self._variance = (1 - gain) * (self._variance + gain * tokens_off**2)
        self._covariance = (1 - gain) * (self._covariance + gain * tokens_off * ns_off)

    @property
    def mean_ns(self) -> float:
        """What a pass takes; 0 before the first."""
        return self._mean_ns

    @property
    def is_known(self) -> bool:
        """Whether passes were of different lengths."""
        return self._variance >= MIN_VARIANCE

    @property
    def per_token_ns(self) -> float:
        """What one token more costs; 0 while that is not known."""
        return max(0.0, self._covariance / self._variance) if self.is_known else 0.0

    @property
    def constant_ns(self) -> float:
        """What a pass costs whatever is in it; 0 while that is not known."""
        return max(0.0, self._mean_ns - self.per_token_ns * self._mean_tokens) if self.is_known else 0.0


class Yield:
    """How many tokens a session with a draft gets of a pass, of late, whether it had candidates or not."""

    def __init__(self) -> None:
        self.mean = 1.0

    def observe(self, num_tokens: int) -> None:
        """Note a session's part in a pass."""
        self.mean += YIELD_SMOOTHING * (num_tokens - self.mean)


def begin_ns(could_begin_ns: int, arrivals: Iterable[Arrival], worth_ns: float) -> float:
    """Give the moment at which a pass is to begin at the latest.

    Parameters
    ----------
    could_begin_ns : since when somebody has something to do and no pass is running.
    arrivals : of candidates that are on their way.
    worth_ns : what is saved if they take part.

    Returns
    -------
    A moment by which those are there that are worth waiting for, or no longer are; ``could_begin_ns`` if none
    is.
    """
    last_ns = could_begin_ns + worth_ns
    awaited = (min(arrival.bound_ns, last_ns) for arrival in arrivals if arrival.mean_ns < last_ns)
    return max(awaited, default=could_begin_ns)
