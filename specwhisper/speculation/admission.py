"""Whether one more session would make the others wait too long."""

from __future__ import annotations

SMOOTHING = 0.05  # weight of the latest answer


class ResponseTime:
    """How long sessions wait for their answers of late: from having something to verify to its commit.

    Encoding is not in it: what waits for the encoder keeps no pass waiting.

    Parameters
    ----------
    budget_ms : what a session may wait on average; ``None`` for any time.
    """

    def __init__(self, budget_ms: float | None = None) -> None:
        self.budget_ms = budget_ms
        self.mean_ms = 0.0
        self._mean_sessions = 0.0

    def observe(self, answer_ns: int, num_sessions: int) -> None:
        """Note how long an answer took while so many sessions were open."""
        weight = SMOOTHING if self._mean_sessions else 1
        self.mean_ms += (answer_ns / 1e6 - self.mean_ms) * weight
        self._mean_sessions += (num_sessions - self._mean_sessions) * weight

    def expected_ms(self, num_sessions: int) -> float:
        """Guess how long answers take with so many sessions, as if all waited for all."""
        return self.mean_ms * num_sessions / self._mean_sessions if self._mean_sessions else 0.0

    def has_room(self, num_sessions: int) -> bool:
        """Tell whether one session more than the ``num_sessions`` there are keeps the budget."""
        if self.budget_ms is None or num_sessions == 0:  # the first always does
            return True
        return self.expected_ms(num_sessions + 1) <= self.budget_ms
