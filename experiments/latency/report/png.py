"""Draw a sweep as PNG files."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.latency.report.drawing import BAND, PARTS, Curve, Drawing

SIZE = (6.4, 4.2)
LEGIBLE = 1.5  # distance from 1 in powers of two up to which black numbers are legible
DPI = 160
NO_ROUND_TRIP = 0.1  # position of 0 on a logarithmic axis


def write_figures(drawing: Drawing, folder: Path) -> list[Path]:
    """Write all figures and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    with plt.rc_context(style):
        return [
            _curves(drawing, folder / "latency-modes.png"),
            _heat_maps(drawing, folder / "latency-gamma.png"),
            _best_gamma(drawing, folder / "latency-best-gamma.png"),
            _time_parts(drawing, folder / "latency-where.png"),
        ]


def _save(path: Path) -> Path:
    plt.tight_layout()
    plt.savefig(path, dpi=DPI)
    plt.close()
    return path


def _places(curve: Curve) -> list[float]:
    return [max(step, NO_ROUND_TRIP) for step in curve.steps]


def _round_trip_axis(axes: Axes, steps: list[float]) -> None:
    axes.set_xscale("log")
    ticks = sorted(set(steps))
    axes.set_xticks([max(step, NO_ROUND_TRIP) for step in ticks], [f"{step:.3g}" for step in ticks])
    axes.minorticks_off()
    axes.set_xlabel("round trip, in target-only forward passes")


def _curves(drawing: Drawing, path: Path) -> Path:
    _, axes = plt.subplots(figsize=(SIZE[0] + 1.6, SIZE[1]))
    for curve in drawing.measured:
        places = _places(curve)
        axes.fill_between(places, curve.low, curve.high, color=curve.colour, alpha=0.15, linewidth=0)
        marker = "o" if curve.is_networked else ""
        axes.plot(places, curve.values, color=curve.colour, marker=marker, markersize=4, label=curve.name)
    for curves, line, name in (
        (drawing.simulated, "--", "simulated"),
        (drawing.closed_form, ":", "closed form"),
    ):
        for curve in curves:
            axes.plot(_places(curve), curve.values, color=curve.colour, linestyle=line, linewidth=1)
        if curves:
            axes.plot([], [], color="#666666", linestyle=line, linewidth=1, label=name)
    if drawing.has_bands:
        axes.fill_between([], [], [], color="#666666", alpha=0.15, linewidth=0, label=BAND)
    _round_trip_axis(axes, [step for curve in drawing.measured for step in curve.steps])
    axes.set_yscale("log", base=2)
    axes.set_yticks([0.25, 0.5, 1, 2, 4], ["0.25", "0.5", "1", "2", "4"])
    axes.set_ylabel("time per token relative to target-only")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _save(path)


def _heat_maps(drawing: Drawing, path: Path) -> Path:
    num_grids = max(1, len(drawing.grids))
    _, all_axes = plt.subplots(1, num_grids, figsize=(3.4 * num_grids, 3.2), squeeze=False)
    for axes, grid in zip(all_axes[0], drawing.grids, strict=False):
        values = np.array([[np.nan if value is None else value for value in row] for row in grid.values])
        axes.imshow(np.log2(values), cmap="RdBu_r", vmin=-2, vmax=2, aspect="auto", origin="lower")
        for (row, column), value in np.ndenumerate(values):
            if not np.isnan(value):
                colour = "white" if abs(np.log2(value)) > LEGIBLE else "black"
                shown = f"{value:.2f}"
                axes.text(column, row, shown, ha="center", va="center", fontsize=7, color=colour)
        axes.set_xticks(range(len(grid.steps)), [f"{step:.3g}" for step in grid.steps])
        axes.set_yticks(range(len(grid.gammas)), map(str, grid.gammas))
        axes.set_title(grid.name)
        axes.set_xlabel("round trip")
    all_axes[0][0].set_ylabel("gamma")
    return _save(path)


def _best_gamma(drawing: Drawing, path: Path) -> Path:
    _, axes = plt.subplots(figsize=SIZE)
    for found, line, suffix in (
        (drawing.best_measured, "-", "measured"),
        (drawing.best_predicted, "--", "predicted"),
    ):
        for curve in found:
            axes.plot(
                _places(curve),
                curve.values,
                color=curve.colour,
                linestyle=line,
                marker="o" if line == "-" else "",
                markersize=4,
                label=f"{curve.name}, {suffix}",
            )
    if curves := [*drawing.best_measured, *drawing.best_predicted]:
        _round_trip_axis(axes, [step for curve in curves for step in curve.steps])
        axes.set_yscale("log", base=2)
        axes.set_yticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        axes.set_ylabel("best draft length")
        axes.legend(loc="upper left")
    else:
        axes.text(0.5, 0.5, "no draft length was set or predicted", ha="center")
    return _save(path)


def _time_parts(drawing: Drawing, path: Path) -> Path:
    _, axes = plt.subplots(figsize=SIZE)
    bars = drawing.time_parts
    left = np.zeros(len(bars.labels))
    for name, values in bars.parts.items():
        axes.barh(bars.labels, values, left=left, color=PARTS[name], label=name)
        left += np.array(values)
    axes.invert_yaxis()
    axes.set_xlabel("time per token relative to target-only (label: mode, round trip)")
    axes.legend(loc="lower right")
    return _save(path)
