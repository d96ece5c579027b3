"""How many sessions are carried: more and more are tried until answers clearly come too late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from experiments.capacity.load import Arm, Outcome

HELD_QUANTILE = 0.95
HOPELESS = 5  # times the lag that is allowed


@dataclass(slots=True)
class Ladder:
    """One arm's way up.

    Attributes
    ----------
    max_lag_s : what 95 % of the windows may take from the end of their audio to their last token.
    most_held : sessions of the highest level below which all were held; 0 if the first was not.
    """

    arm: Arm
    max_lag_s: float
    outcomes: list[Outcome] = field(default_factory=list)
    stopped: str = ""

    def holds(self, outcome: Outcome) -> bool:
        """Whether a level is held: something was due, none failed, and the lag is what it may be."""
        return bool(outcome.lags_s) and not outcome.failures and self._lag_s(outcome) <= self.max_lag_s

    def climb(self, outcome: Outcome) -> None:
        """Take in a level; it is the last if answers clearly come too late."""
        self.outcomes.append(outcome)
        if outcome.failures:
            self.stopped = f"sessions failed at {outcome.load.num_sessions}: {outcome.failures[0]}"
        elif self._lag_s(outcome) > HOPELESS * self.max_lag_s:
            self.stopped = f"{self._lag_s(outcome):.1f} s behind at {outcome.load.num_sessions}"

    @property
    def most_held(self) -> int:
        """Sessions that are carried."""
        most = 0
        for outcome in self.outcomes:
            if not self.holds(outcome):
                break
            most = outcome.load.num_sessions
        return most

    @staticmethod
    def _lag_s(outcome: Outcome) -> float:
        return outcome.lag_s(HELD_QUANTILE)


def memory_of_a_session(outcomes: Iterable[Outcome]) -> float | None:
    """Return by how many megabytes the target grows with a session; ``None`` where only one number was tried.

    The least-squares slope over all levels: what the first session touches besides its slot is left out.
    """
    points = [(outcome.load.num_sessions, outcome.resident_mb) for outcome in outcomes]
    return slope(points) if len({number for number, _ in points}) > 1 else None


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Fit a line and give its slope."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return float(above / sum((x - mean_x) ** 2 for x, _ in points))
