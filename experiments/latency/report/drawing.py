"""What is drawn of a sweep: numbers by round trip and draft length, the same for paper and page."""

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
PARTS = {"target's passes": "#0072B2", "draft": "#E69F00", "network": "#D55E00", "other waiting": "#BBBBBB"}
BAND = "95 % of resampled repeats"


@dataclass(frozen=True)
class Curve:
    """Values over round trips, in passes of the target alone; not a number where there is a gap.

    Attributes
    ----------
    arm : mode, and cores of its process.
    low, high : the interval that resampling the repeats gives; empty for what was not measured.
    """

    arm: Arm
    steps: list[float]
    values: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The mode, and its cores where it has several."""
        return arm_name(*self.arm)

    @property
    def colour(self) -> str:
        """What it is drawn in, measured or predicted."""
        return COLOURS[self.arm]

    @property
    def is_networked(self) -> bool:
        """Whether round trips are of any matter to it."""
        return self.arm[0] is not Mode.ONE_PROCESS

    @property
    def has_band(self) -> bool:
        """Whether there were repeats to resample."""
        return any(low < high for low, high in zip(self.low, self.high, strict=True))


@dataclass(frozen=True)
class Grid:
    """Values by round trip (columns) and draft length (rows); ``None`` where nothing was measured."""

    name: str
    steps: list[float]
    gammas: list[int]
    values: list[list[float | None]]


@dataclass(frozen=True)
class Bars:
    """What a token's time consists of, by mode and round trip; over the target alone's."""

    labels: list[str]
    parts: dict[str, list[float]]


@dataclass(frozen=True)
class Drawing:
    """Everything that is drawn of a sweep; times over the target alone's beside them."""

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
        """Whether anything was measured more than once."""
        return any(curve.has_band for curve in self.measured)
