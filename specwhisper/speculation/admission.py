"""Whether one more session would make the others wait too long."""

from __future__ import annotations

SMOOTHING = 0.05  # weight of the latest answer


class AnswerTime:
    """How long sessions wait for their answers of late: from having something to verify to its commit.

    Parameters
    ----------
    budget_ms : what a session may wait on average; ``None`` for any time.
    """

    def __init__(self, budget_ms: float | None = None) -> None:
        self.budget_ms = budget_ms
        self.mean_ms = 0.0

    def observe(self, answer_ns: int) -> None:
        """Note how long an answer took."""
        answer_ms = answer_ns / 1e6
        self.mean_ms += (answer_ms - self.mean_ms) * (SMOOTHING if self.mean_ms else 1)

    def expected_ms(self, num_sessions: int) -> float:
        """Guess how long answers take with one session more than the ``num_sessions`` there are."""
        return self.mean_ms * (num_sessions + 1) / num_sessions if num_sessions else 0.0

    def has_room(self, num_sessions: int) -> bool:
        """Tell whether one more session keeps the budget; the first always does."""
        return self.budget_ms is None or self.expected_ms(num_sessions) <= self.budget_ms
