"""What a pass costs whatever is in it, and what each token adds: a line through what passes took."""

from __future__ import annotations

FORWARD_DECAY = 1 - 1 / 256  # of a pass's weight with every later one
MIN_VARIANCE = 1.0  # of the tokens of passes, below which no line is drawn through them


class ForwardTime:
    """What passes take by their tokens: the line of least squares, in which late ones count more."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean_tokens = 0.0
        self._mean_ns = 0.0
        self._variance = 0.0
        self._covariance = 0.0

    def observe(self, num_tokens: int, forward_ns: float) -> None:
        """Note a pass."""
        self._weight = FORWARD_DECAY * self._weight + 1
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
