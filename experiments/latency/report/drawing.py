"""Data and look of a sweep's figures, the same for files and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from experiments.common.bench.figure_style import COLOURS
from experiments.latency.cells import Arm, Hints
from experiments.latency.report.bars import CLOSED_FORM_BOUND, SIMULATION_BOUND
from specwhisper.types import Mode


class Style(NamedTuple):
    """Colour, dashes and marker of an arm, by plotly's names."""

    colour: str
    dash: str = "solid"
    marker: str = "circle"


TARGET_ONLY = Arm(Mode.TARGET_ONLY)
STYLES = {  # arms of one mode also differ in dashes and markers
    TARGET_ONLY: Style(COLOURS[Mode.TARGET_ONLY]),
    Arm(Mode.SYNC): Style(COLOURS[Mode.SYNC], marker="square"),
    Arm(Mode.PIPELINED): Style(COLOURS[Mode.PIPELINED], marker="triangle-up"),
    Arm(Mode.FULL): Style(COLOURS[Mode.FULL]),
    Arm(Mode.FULL, hints=Hints.OFF): Style("#56B4E9", "dash", "square"),
    Arm(Mode.FULL, hints=Hints.GIVEN): Style("#8A7A00", "dashdot", "triangle-up"),
    Arm(Mode.FULL, hints=Hints.ADVERSARIAL): Style("#777777", "dot", "diamond"),
    Arm(Mode.ONE_PROCESS): Style(COLOURS[Mode.ONE_PROCESS], marker="diamond"),
    Arm(Mode.ONE_PROCESS, 2): Style("#CC79A7", "dash", "triangle-down"),
}
PREDICTED = "#666666"  # best draft lengths
PARTS = {
    "target's forward passes": "#0072B2",
    "draft": "#E69F00",
    "network": "#D55E00",
    "other waiting": "#BBBBBB",
}
# ColorBrewer's RdBu, reversed: faster than target-only is blue, slower is red.
HEAT = (
    *("#053061", "#2166AC", "#4393C3", "#92C5DE", "#D1E5F0", "#F7F7F7"),
    *("#FDDBC7", "#F4A582", "#D6604D", "#B2182B", "#67001F"),
)
HEAT_LIMIT = 4  # colours end at this ratio and at its inverse
HEAT_TICKS = (0.25, 0.5, 1, 2, 4)
RATIO_TICKS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2, 3, 5, 8)
PREDICTION_BOUNDS = {"simulation": SIMULATION_BOUND, "closed form": CLOSED_FORM_BOUND}
ROUND_TRIP = "round trip, target-only forward passes"
PER_TOKEN = "time per token (target-only = 1)"
GAMMA = "draft length (gamma), tokens"


def shown(value: float) -> str:
    """Return the text of a tick: three digits, never an exponent."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def percent(share: float) -> str:
    """Return the text of a share."""
    return f"{100 * share:.0f} %"


@dataclass(frozen=True)
class Curve:
    """A ratio and its interval at each of the drawing's round trips; NaN where there is none."""

    arm: Arm
    values: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Grid:
    """Ratios by draft length (rows) and round trip (columns); NaN where not measured."""

    arm: Arm
    gammas: list[int]
    values: list[list[float]]


class Tie(NamedTuple):
    """The best draft length, and all lengths that are as good within noise, itself included."""

    best: int
    tied: list[int]


@dataclass(frozen=True)
class BestGammas:
    """The best draft lengths at each of the drawing's round trips; ``None`` where there is none."""

    arm: Arm
    ties: list[Tie | None]

    def placed(self, name: str) -> list[tuple[float, Tie]]:
        """Return positions and ties: measured ones left of each round trip, predicted ones right of it."""
        off = -0.15 if name == "measured" else 0.15
        return [(place + off, tie) for place, tie in enumerate(self.ties) if tie]


@dataclass(frozen=True)
class Dots:
    """Measured and predicted ratios of an arm's cells."""

    arm: Arm
    cells: list[str]
    measured: list[float]
    predicted: list[float]


@dataclass(frozen=True)
class Bars:
    """Parts of a token's time, by mode and round trip, relative to target-only."""

    labels: list[str]
    parts: dict[str, list[float]]


@dataclass(frozen=True)
class Drawing:
    """All figures of a sweep; times are relative to target-only at the same round trip.

    Attributes
    ----------
    title : the models.
    steps : round trips in target-only forward passes, ascending.
    step_ms : time of a target-only forward pass on the measured machine.
    repeats, drawn_repeats, set_repeats : their number, as in "n = 5": of all cells, of those in curves, and
        of those with a set draft length.
    curves : of all modes that draft.
    lengths_are_chosen : whether sessions chose the draft lengths of curves and bars; otherwise each has the
        fastest of the set lengths.
    """

    title: str
    steps: list[float]
    step_ms: float
    repeats: str
    drawn_repeats: str
    set_repeats: str
    lengths_are_chosen: bool
    curves: list[Curve]
    grids: list[Grid]
    best_measured: list[BestGammas]
    best_predicted: list[BestGammas]
    simulated: list[Dots]
    closed_form: list[Dots]
    time_parts: Bars

    @property
    def panels(self) -> dict[str, list[Curve]]:
        """Curves by panel: the modes and, if the sweep varies them, the hints of ``full``."""
        modes = [curve for curve in self.curves if curve.arm.hints is Hints.REALIGNED]
        hints = [curve for curve in self.curves if curve.arm.mode is Mode.FULL]
        return {"modes": modes} | ({"full, by hints": hints} if len(hints) > 1 else {})

    @property
    def has_intervals(self) -> bool:
        """Whether any cell was measured several times."""
        return any(not isnan(low) for curve in self.curves for low in curve.low)

    @property
    def best_gammas(self) -> dict[Arm, dict[str, BestGammas]]:
        """Measured and predicted best draft lengths by arm."""
        by_arm: dict[Arm, dict[str, BestGammas]] = {}
        for name, found in (("measured", self.best_measured), ("predicted", self.best_predicted)):
            for best in found:
                by_arm.setdefault(best.arm, {})[name] = best
        return by_arm

    @property
    def predictions(self) -> dict[str, list[Dots]]:
        """Dots by kind of prediction, of those that have any."""
        kinds = zip(PREDICTION_BOUNDS, (self.simulated, self.closed_form), strict=True)
        return {name: dots for name, dots in kinds if dots}

    @property
    def prediction_range(self) -> tuple[float, float]:
        """Lowest and highest ratio of all dots, with a margin."""
        found = [dots for kind in self.predictions.values() for dots in kind]
        values = [value for dots in found for value in (*dots.measured, *dots.predicted)]
        return min(values) / 1.1, max(values) * 1.1

    @property
    def ms_label(self) -> str:
        """Label of the axis of round trips on the measured machine."""
        return f"round trip, ms (target-only forward pass: {shown(self.step_ms)} ms)"

    def step_ticks(self) -> Sequence[str]:
        """Return the round trips in forward passes."""
        return [shown(step) for step in self.steps]

    def ms_ticks(self) -> Sequence[str]:
        """Return the round trips in milliseconds."""
        return [shown(step * self.step_ms) for step in self.steps]
