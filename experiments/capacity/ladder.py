"""Find the number of sessions that a target carries: levels grow until answers are too late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from experiments.capacity.load import Arm, Outcome

HELD_QUANTILE = 0.95
HOPELESS = 5  # times the allowed lag


@dataclass(slots=True)
class Ladder:
    """The levels of one arm.

    Attributes
    ----------
    max_lag_s : largest 95th percentile of the time from a window's end to its last token.
    most_held : sessions of the highest level up to which all held; 0 if none did.
    """

    arm: Arm
    max_lag_s: float
    outcomes: list[Outcome] = field(default_factory=list)
    stopped: str = ""

    def holds(self, outcome: Outcome) -> bool:
        """Return whether a level held: windows were due, no session failed, and the lag was acceptable."""
        return bool(outcome.lags_s) and not outcome.failures and self._lag_s(outcome) <= self.max_lag_s

    def climb(self, outcome: Outcome) -> None:
        """Add a level; stop if sessions failed or answers were far too late."""
        self.outcomes.append(outcome)
        if outcome.failures:
            self.stopped = f"sessions failed at {outcome.load.num_sessions}: {outcome.failures[0]}"
        elif self._lag_s(outcome) > HOPELESS * self.max_lag_s:
            self.stopped = f"{self._lag_s(outcome):.1f} s late at {outcome.load.num_sessions}"

    @property
    def most_held(self) -> int:
        """Sessions that the target carries."""
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
    """Return the memory of another session in MB; ``None`` if only one level was measured.

    It is the least-squares slope over all levels, without what the first session allocates.
    """
    points = [(outcome.load.num_sessions, outcome.resident_mb) for outcome in outcomes]
    return slope(points) if len({number for number, _ in points}) > 1 else None


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Fit a line; return its slope."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return float(above / sum((x - mean_x) ** 2 for x, _ in points))
