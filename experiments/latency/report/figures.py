"""Draw a sweep for print, as PNG, SVG and PDF."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from experiments.common.bench.figure_style import DPI, STYLE, UNDATED
from experiments.latency.report.captions import captions_of
from experiments.latency.report.drawing import (
    GAMMA,
    HEAT,
    HEAT_LIMIT,
    HEAT_TICKS,
    PARTS,
    PER_TOKEN,
    PREDICTED,
    PREDICTION_BOUNDS,
    RATIO_TICKS,
    ROUND_TRIP,
    STYLES,
    TARGET_ONLY,
    Drawing,
    percent,
)

WIDTH = 7.0  # inches, both columns of a paper
LEGIBLE = 1.5  # distance from 1 in powers of two up to which black numbers are legible
DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "dot": ":"}
MARKERS = {"circle": "o", "square": "s", "triangle-up": "^", "triangle-down": "v", "diamond": "D"}


def write_figures(drawing: Drawing, folder: Path) -> list[Path]:
    """Write each figure that has data in three formats; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with plt.rc_context(STYLE):
        for caption in captions_of(drawing):
            figure = FIGURES[caption.name](drawing)
            for suffix, metadata in UNDATED.items():
                path = folder / f"{caption.name}.{suffix}"
                figure.savefig(path, dpi=DPI, metadata=metadata)
                written.append(path)
            plt.close(figure)
    return written


def _panels(number: int, height: float) -> tuple[Figure, list[Axes]]:
    """Return axes beside each other that share the vertical one."""
    figure, axes = plt.subplots(
        1, number, figsize=(WIDTH, height), sharey=True, squeeze=False, layout="constrained"
    )
    return figure, list(axes[0])


def _round_trips(axes: Axes, drawing: Drawing) -> None:
    """Label evenly spaced round trips in forward passes, and at the top in milliseconds."""
    places = range(len(drawing.steps))
    axes.set_xticks(places, drawing.step_ticks())
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xlabel(ROUND_TRIP.replace(", ", ",\n"))
    top = axes.secondary_xaxis("top")
    top.set_xticks(places, drawing.ms_ticks(), fontsize=7)
    top.set_xlabel(drawing.ms_label.replace(" (", "\n("), fontsize=7)


def _ratios(axes: Axes, *, of_x: bool = False) -> None:
    """Make an axis of ratios logarithmic, with plain numbers."""
    limits = axes.set_xlim if of_x else axes.set_ylim
    (axes.set_xscale if of_x else axes.set_yscale)("log", base=2)
    low, high = limits()
    ticks = [tick for tick in RATIO_TICKS if low <= tick <= high]
    (axes.xaxis if of_x else axes.yaxis).set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    limits(low, high)


def _legend_below(figure: Figure, repeats: str) -> None:
    """Name what all panels show once, and how many repeats it has."""
    named = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(
        list(named.values()),
        list(named),
        title=repeats,
        title_fontsize=7,
        loc="outside lower center",
        ncols=4,
        handlelength=3.5,
    )


def _curves(drawing: Drawing) -> Figure:
    figure, panels = _panels(len(drawing.panels), 3.6)
    for axes, (name, curves) in zip(panels, drawing.panels.items(), strict=True):
        axes.axhline(1, color=STYLES[TARGET_ONLY].colour, linewidth=0.8, label=str(TARGET_ONLY))
        for curve in curves:
            style, values = STYLES[curve.arm], np.array(curve.values)
            off = np.abs(np.array([curve.low, curve.high]) - values)
            axes.errorbar(
                range(len(values)),
                values,
                off if drawing.has_intervals else None,
                color=style.colour,
                linestyle=DASHES[style.dash],
                marker=MARKERS[style.marker],
                elinewidth=0.8,
                capsize=2,
                label=str(curve.arm),
            )
        _round_trips(axes, drawing)
        axes.set_title(name)
    _ratios(panels[0])
    panels[0].set_ylabel(PER_TOKEN)
    _legend_below(figure, drawing.drawn_repeats)
    return figure


def _heat_maps(drawing: Drawing) -> Figure:
    figure, panels = _panels(len(drawing.grids), 2.8)
    colours = LinearSegmentedColormap.from_list("heat", HEAT)
    scale = LogNorm(1 / HEAT_LIMIT, HEAT_LIMIT)
    for axes, grid in zip(panels, drawing.grids, strict=True):
        image = axes.imshow(np.array(grid.values), cmap=colours, norm=scale, aspect="auto", origin="lower")
        for (row, column), value in np.ndenumerate(np.array(grid.values)):
            if not np.isnan(value):
                colour = "white" if abs(np.log2(value)) > LEGIBLE else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)
        axes.set_yticks(range(len(grid.gammas)), map(str, grid.gammas))
        _round_trips(axes, drawing)
        axes.set_title(str(grid.arm))
    panels[0].set_ylabel(GAMMA)
    label = f"{PER_TOKEN}, {drawing.set_repeats}"
    bar = figure.colorbar(image, ax=panels, extend="both", pad=0.01, label=label)
    bar.set_ticks(list(HEAT_TICKS), labels=[f"{tick:g}" for tick in HEAT_TICKS])
    bar.minorticks_off()
    return figure


def _best_gammas(drawing: Drawing) -> Figure:
    figure, panels = _panels(len(drawing.best_gammas), 2.8)
    lengths: set[int] = set()
    for axes, (arm, found) in zip(panels, drawing.best_gammas.items(), strict=True):
        for name, best in found.items():
            is_measured = name == "measured"
            colour, ties = STYLES[arm].colour if is_measured else PREDICTED, best.placed(name)
            for x, tie in ties:
                places = [x] * len(tie.tied)
                axes.plot(places, tie.tied, color=colour, marker="_", linewidth=2.5, alpha=0.45)
                lengths |= set(tie.tied)
            axes.plot(
                [x for x, _ in ties],
                [tie.best for _, tie in ties],
                color=colour,
                linestyle="",
                marker="o" if is_measured else "D",
                fillstyle="full" if is_measured else "none",
                label=f"{name}, {drawing.set_repeats}" if is_measured else name,
            )
        _round_trips(axes, drawing)
        axes.set_title(str(arm))
        axes.legend(loc="upper left")
    panels[0].set_yscale("log", base=2)
    ticks = [2**power for power in range(max(lengths).bit_length())]
    panels[0].set_yticks(ticks, map(str, ticks))
    panels[0].set_ylim(top=4 * max(lengths))  # room for the legends
    panels[0].set_ylabel(f"best {GAMMA}")
    return figure


def _predictions(drawing: Drawing) -> Figure:
    figure, panels = _panels(len(drawing.predictions), 4)
    for axes, (name, found) in zip(panels, drawing.predictions.items(), strict=True):
        bound, line = PREDICTION_BOUNDS[name], np.array(drawing.prediction_range)
        axes.fill_between(line, line * (1 - bound), line * (1 + bound), color="#DDDDDD", linewidth=0)
        axes.plot(line, line, color="#888888", linewidth=0.8)
        for dots in found:
            style = STYLES[dots.arm]
            axes.plot(
                dots.measured,
                dots.predicted,
                color=style.colour,
                linestyle="",
                marker=MARKERS[style.marker],
                markersize=3,
                fillstyle="none",
                label=str(dots.arm),
            )
        axes.set_xlabel(f"measured {PER_TOKEN}")
        axes.set_xlim(*line)
        axes.set_title(f"{name}, within {percent(bound)} shaded")
        _ratios(axes, of_x=True)
    panels[0].set_ylim(*line)
    _ratios(panels[0])
    panels[0].set_ylabel(f"predicted {PER_TOKEN}")
    _legend_below(figure, drawing.repeats)
    return figure


def _time_parts(drawing: Drawing) -> Figure:
    bars = drawing.time_parts
    figure, (axes,) = _panels(1, 1 + 0.2 * len(bars.labels))
    left = np.zeros(len(bars.labels))
    for name, values in bars.parts.items():
        axes.barh(bars.labels, values, left=left, color=PARTS[name], label=name)
        left += np.array(values)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02 * max(left))
    axes.axvline(1, color=STYLES[TARGET_ONLY].colour, linewidth=0.8)
    axes.set_ylabel("mode, round trip in\nforward passes")
    axes.set_xlabel(PER_TOKEN)
    _legend_below(figure, drawing.drawn_repeats)
    return figure


FIGURES = {
    "latency-modes": _curves,
    "latency-gamma": _heat_maps,
    "latency-best-gamma": _best_gammas,
    "latency-predictions": _predictions,
    "latency-where": _time_parts,
}
