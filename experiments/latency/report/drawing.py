"""Data of a sweep's figures, the same for PNG files and page."""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.latency.cells import Arm, arm_name
from specwhisper.types import Mode

COLOURS = {  # colour-blind safe (Okabe and Ito)
    (Mode.TARGET_ONLY, 1): "#000000",
    (Mode.SYNC, 1): "#D55E00",
    (Mode.PIPELINED, 1): "#E69F00",
    (Mode.FULL, 1): "#0072B2",
    (Mode.ONE_PROCESS, 1): "#009E73",
    (Mode.ONE_PROCESS, 2): "#CC79A7",
}
PARTS = {
    "target's forward passes": "#0072B2",
    "draft": "#E69F00",
    "network": "#D55E00",
    "other waiting": "#BBBBBB",
}
BAND = "95 % of resampled repeats"


@dataclass(frozen=True)
class Curve:
    """Values over round trips, in forward passes of target-only; NaN marks a gap.

    Attributes
    ----------
    arm : mode, and cores of the target's process.
    low, high : interval of the resampled repeats; empty for predictions.
    """

    arm: Arm
    steps: list[float]
    values: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Mode, with its number of cores above one."""
        return arm_name(*self.arm)

    @property
    def colour(self) -> str:
        """Line colour, the same for measured and predicted values."""
        return COLOURS[self.arm]

    @property
    def is_networked(self) -> bool:
        """Whether its mode uses the network."""
        return self.arm[0] is not Mode.ONE_PROCESS

    @property
    def has_band(self) -> bool:
        """Whether several repeats were measured."""
        return any(low < high for low, high in zip(self.low, self.high, strict=True))


@dataclass(frozen=True)
class Grid:
    """Values by round trip (columns) and draft length (rows); ``None`` where not measured."""

    name: str
    steps: list[float]
    gammas: list[int]
    values: list[list[float | None]]


@dataclass(frozen=True)
class Bars:
    """Parts of a token's time, by mode and round trip, relative to target-only."""

    labels: list[str]
    parts: dict[str, list[float]]


@dataclass(frozen=True)
class Drawing:
    """All figures of a sweep; times are relative to target-only at the same round trip."""

    title: str
    measured: list[Curve]
    simulated: list[Curve]
    closed_form: list[Curve]
    grids: list[Grid]
    best_measured: list[Curve]
    best_predicted: list[Curve]
    time_parts: Bars

    @property
    def has_bands(self) -> bool:
        """Whether any cell was measured several times."""
        return any(curve.has_band for curve in self.measured)
