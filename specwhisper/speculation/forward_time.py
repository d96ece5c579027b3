"""Split the time of a forward pass into a constant part and one for each token."""

from __future__ import annotations

from collections.abc import Sequence

FORWARD_DECAY = 1 - 1 / 256  # of a forward pass's weight with every later one
ENGINE_NS = 200_000  # of a session between two forward passes: its engine, its messages
MIN_VARIANCE = 1.0  # of the numbers of tokens; below it the slope is unknown


class ForwardTime:
    """Least squares over forward passes, time by tokens; recent ones count more."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean_tokens = 0.0
        self._mean_ns = 0.0
        self._variance = 0.0
        self._covariance = 0.0

    def observe(self, num_tokens: int, forward_ns: float) -> None:
        """Add a forward pass."""
        self._weight = FORWARD_DECAY * self._weight + 1
        gain = 1 / self._weight
        tokens_off, ns_off = num_tokens - self._mean_tokens, forward_ns - self._mean_ns
        self._mean_tokens += gain * tokens_off
        self._mean_ns += gain * ns_off
        self._variance = (1 - gain) * (self._variance + gain * tokens_off**2)
        self._covariance = (1 - gain) * (self._covariance + gain * tokens_off * ns_off)

    @property
    def mean_ns(self) -> float:
        """Mean time of a forward pass; 0 before the first."""
        return self._mean_ns

    @property
    def is_known(self) -> bool:
        """Whether the forward passes differed enough in their tokens."""
        return self._variance >= MIN_VARIANCE

    @property
    def per_token_ns(self) -> float:
        """Time that one more token takes; 0 if it is unknown."""
        return max(0.0, self._covariance / self._variance) if self.is_known else 0.0

    @property
    def constant_ns(self) -> float:
        """Time that a forward pass takes without tokens; 0 if it is unknown."""
        return max(0.0, self._mean_ns - self.per_token_ns * self._mean_tokens) if self.is_known else 0.0


class TokenShare:
    """Estimates what one more token of a session costs the target.

    Calling it returns the time of the token over the session's part of a forward pass without tokens. That is
    at most 1, and 0 until it is known.
    """

    def __init__(self) -> None:
        self._time = ForwardTime()
        self._share = 0.0

    def observe(self, widths: Sequence[int], forward_ns: float) -> None:
        """Add a forward pass, with the tokens of each session."""
        self._time.observe(sum(widths), forward_ns)
        token_ns = self._time.per_token_ns
        session_ns = self._time.constant_ns / len(widths) + ENGINE_NS
        self._share = token_ns / max(token_ns, session_ns)

    def __call__(self) -> float:
        """Return the current estimate."""
        return self._share
