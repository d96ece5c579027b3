"""Data of a sweep's figures, the same for PNG files and page."""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.latency.cells import Arm, Hints
from specwhisper.types import Mode

COLOURS = {  # colour-blind safe (Okabe and Ito)
    Arm(Mode.TARGET_ONLY): "#000000",
    Arm(Mode.SYNC): "#D55E00",
    Arm(Mode.PIPELINED): "#E69F00",
    Arm(Mode.FULL): "#0072B2",
    Arm(Mode.FULL, hints=Hints.OFF): "#56B4E9",
    Arm(Mode.FULL, hints=Hints.GIVEN): "#B0A000",
    Arm(Mode.FULL, hints=Hints.ADVERSARIAL): "#888888",
    Arm(Mode.ONE_PROCESS): "#009E73",
    Arm(Mode.ONE_PROCESS, 2): "#CC79A7",
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
    low, high : interval of the resampled repeats; empty for predictions.
    """

    arm: Arm
    steps: list[float]
    values: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Mode, with its hints and its number of cores above one."""
        return str(self.arm)

    @property
    def colour(self) -> str:
        """Line colour, the same for measured and predicted values."""
        return COLOURS[self.arm]

    @property
    def is_networked(self) -> bool:
        """Whether its mode uses the network."""
        return self.arm.mode is not Mode.ONE_PROCESS

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
