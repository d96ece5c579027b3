"""Draw what the laboratory found, from its JSON files, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from experiments.capacity.laws import laws
from experiments.latency.cells import CHOSEN
from experiments.latency.page import Facts, cells
from specwhisper.types import Mode

DPI = 200
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "svg.hashsalt": "specwhisper",  # equal names in equal files
}
UNDATED: dict[str, dict[str, None]] = {  # two runs write equal bytes
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
STYLES: dict[Mode, dict[str, Any]] = {  # colours are colour-blind safe (Okabe and Ito)
    Mode.TARGET_ONLY: {"color": "#000000", "marker": "o"},
    Mode.SYNC: {"color": "#D55E00", "marker": "v"},
    Mode.PIPELINED: {"color": "#E69F00", "marker": "^"},
    Mode.FULL: {"color": "#0072B2", "marker": "s"},
    Mode.ONE_PROCESS: {"color": "#009E73", "marker": "D"},
}
WIDTH = 7.0  # inches, both columns of a paper
DRAFTING = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)
MODES = (*DRAFTING, Mode.ONE_PROCESS)
RATIOS = (0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20)
FEW_RATIOS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)  # ticks of an axis that spans more than a factor of 50
MIN_REPEATS = 3  # with fewer an interval says nothing
COLD_TO_HOT = ("#0072B2", "#ffffff", "#D55E00")
OVER = "time over target-only"
RTT = "round trip, ms"


def modes(facts: Facts) -> Figure:
    figure, panels = plt.subplots(1, 2, figsize=(WIDTH, 3.0), sharey=True, layout="constrained")
    for axes, (what, title) in zip(
        panels, (("decoding", "decoding"), ("wall", "whole utterance")), strict=True
    ):
        _curves(axes, facts["grid"], "clean", f"{what}_over_target_only")
        axes.set_title(title)
    repeats = len(cells(facts["grid"], condition="clean", mode=Mode.FULL, gamma=CHOSEN)[0]["decoding_s"])
    panels[0].set_ylabel(f"{OVER}, n = {repeats}")
    _legend(figure, panels[0])
    return figure


def conditions(facts: Facts) -> Figure:
    grid = facts["grid"]
    figure, panels = plt.subplots(
        1, len(grid["speech"]), figsize=(WIDTH, 2.8), sharey=True, layout="constrained"
    )
    for axes, (condition, counts) in zip(panels, grid["speech"].items(), strict=True):
        _curves(axes, grid, condition, "decoding_over_target_only")
        repeats = len(cells(grid, condition=condition, mode=Mode.FULL, gamma=CHOSEN)[0]["decoding_s"])
        axes.set_title(f"{condition}: {counts['acceptance']:.0%} right, n = {repeats}")
    panels[0].set_ylabel(f"decoding, {OVER}")
    _legend(figure, panels[0])
    return figure


def gammas(facts: Facts) -> Figure:
    figure, panels = plt.subplots(1, 3, figsize=(WIDTH, 2.6), sharey=True, layout="constrained")
    colours, scale = LinearSegmentedColormap.from_list("ratios", COLD_TO_HOT), LogNorm(1 / 8, 8)
    for axes, mode in zip(panels, DRAFTING, strict=True):
        found = [
            cell for cell in cells(facts["grid"], condition="clean", mode=mode) if cell["gamma"] != CHOSEN
        ]
        lengths = sorted({cell["gamma"] for cell in found})
        round_trips = sorted({cell["rtt_ms"] for cell in found})
        values = np.full((len(lengths), len(round_trips)), np.nan)
        for cell in found:
            place = lengths.index(cell["gamma"]), round_trips.index(cell["rtt_ms"])
            values[place] = cell["decoding_over_target_only"][0]
        image = axes.imshow(values, cmap=colours, norm=scale, aspect="auto", origin="lower")
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if abs(np.log2(value)) > 1.5 else "black"
            axes.text(
                column,
                row,
                f"{value:.2f}" if value < 1 else f"{value:.2g}",
                ha="center",
                va="center",
                fontsize=5.5,
                color=colour,
            )
        axes.set_yticks(range(len(lengths)), map(str, lengths))
        axes.set_xticks(range(len(round_trips)), [f"{each:g}" for each in round_trips])
        axes.set_xlabel(RTT)
        axes.set_title(str(mode))
    panels[0].set_ylabel("gamma, tokens in a block")
    bar = figure.colorbar(image, ax=panels, pad=0.01, label=f"decoding, {OVER}", extend="both")
    bar.set_ticks([0.125, 0.25, 0.5, 1, 2, 4, 8], labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.minorticks_off()
    return figure


def waits(facts: Facts) -> Figure:
    figure, axes = plt.subplots(figsize=(WIDTH / 2, 2.8), layout="constrained")
    for mode in (Mode.TARGET_ONLY, *DRAFTING):
        found = cells(facts["grid"], condition="clean", mode=mode, gamma=CHOSEN, has_hint=False)
        here = [cell for cell in found if cell["waits"] is not None and cell["rtt_ms"] >= 25]
        axes.plot([c["rtt_ms"] for c in here], [c["waits"] for c in here], label=str(mode), **STYLES[mode])
    axes.axhline(3, color="grey", linewidth=0.8, linestyle=":")
    axes.set_ylim(0)
    axes.set_xlabel(RTT)
    axes.set_ylabel("round trips an utterance waits for")
    axes.legend()
    return figure


def predictions(facts: Facts) -> Figure:
    figure, axes = plt.subplots(figsize=(WIDTH / 2, 3.2), layout="constrained")
    for mode in DRAFTING:
        found = [cell for cell in cells(facts["grid"], mode=mode) if cell.get("simulated") is not None]
        measured = [cell["decoding_over_target_only"][0] for cell in found]
        simulated = [cell["simulated"] for cell in found]
        style = STYLES[mode] | {"linestyle": "none", "markersize": 3}
        axes.plot(measured, simulated, alpha=0.6, label=str(mode), **style)
    ends = np.array([0.1, 30.0])
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, ends * 0.9, ends * 1.1, color="grey", alpha=0.25, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"measured {OVER}")
    axes.set_ylabel(f"simulated {OVER}")
    axes.set_title("shaded: 10%")
    _legend(figure, axes)
    return figure


def large(facts: Facts) -> Figure:
    """Draw what is simulated at the costs of large-v3, and gains of many clients against the law."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.0), layout="constrained")
    rows = facts["large-v3"]["expected"][0]["rows"]
    many = next(name for name in rows[0] if name.endswith("sessions, full"))
    for name, label, style in (
        *((str(mode), str(mode), STYLES[mode]) for mode in DRAFTING),
        ("both on the GPU", "both models on the GPU", STYLES[Mode.ONE_PROCESS]),
        (many, many, {**STYLES[Mode.FULL], "linestyle": "--", "markerfacecolor": "white"}),
    ):
        left.plot(range(len(rows)), [row[name] for row in rows], label=label, **style)
    left.axhline(1, color="black", linewidth=0.8)
    left.set_xticks(range(len(rows)), [f"{row['rtt_ms']:g}" for row in rows])
    _ratio_axis(left)
    left.set_xlabel(RTT)
    left.set_ylabel(OVER)
    left.set_title("large-v3 on an H200, simulated")
    left.legend(fontsize=6)
    numbers = sorted({each.clients for found in laws(facts).values() for each in found})
    for place, (name, found) in enumerate(laws(facts).items()):
        clients = [each.clients for each in found]
        colour = ("#0072B2", "#D55E00")[place]
        right.plot(
            clients, [each.predicted for each in found], color=colour, linestyle=":", label=f"{name}: law"
        )
        right.plot(
            clients, [each.gain for each in found], color=colour, marker="s", label=f"{name}: measured"
        )
    right.axhline(1, color="black", linewidth=0.8)
    right.set_xscale("log", base=2)
    right.set_xticks(numbers, map(str, numbers))
    right.set_ylim(0, 8)
    right.set_xlabel("clients of one target")
    right.set_ylabel("tokens per second over target-only")
    right.set_title("capacity")
    right.legend(fontsize=6, loc="upper right")
    return figure


FIGURES: dict[str, Callable[[Facts], Figure]] = {
    "modes": modes,
    "conditions": conditions,
    "gammas": gammas,
    "waits": waits,
    "predictions": predictions,
    "large-v3": large,
}


def draw(facts: Facts, folder: Path) -> list[Path]:
    """Write the figures whose data there is; return their paths."""
    needed = {"large-v3": {"large-v3", "capacity", "crowd"}}
    written = []
    with plt.rc_context(STYLE):
        for name, make in FIGURES.items():
            if not needed.get(name, {"grid"}) <= set(facts):
                continue
            figure = make(facts)
            for suffix in ("png", "svg"):
                path = folder / f"latency-{name}.{suffix}"
                figure.savefig(path, dpi=DPI, metadata=UNDATED[suffix])
                written.append(path)
            plt.close(figure)
    return written


def _curves(axes: Axes, grid: Facts, condition: str, name: str) -> None:
    axes.axhline(1, color="black", linewidth=0.8, label="target-only")
    arms = [(mode, False) for mode in MODES] + [(Mode.TARGET_ONLY, True), (Mode.FULL, True)]
    round_trips: Sequence[float] = []
    for mode, has_hint in arms:
        found = cells(grid, condition=condition, mode=mode, gamma=CHOSEN, has_hint=has_hint)
        if not found:
            continue
        round_trips = [cell["rtt_ms"] for cell in found]
        value, low, high = np.array([cell[name] for cell in found]).T
        style = STYLES[mode] | ({"linestyle": "--", "markerfacecolor": "white"} if has_hint else {})
        label = f"{mode}, given hint" if has_hint else str(mode)
        off = np.maximum(0, [value - low, high - value])
        repeats = min(len(cell["decoding_s"]) for cell in found)
        shown = off if repeats >= MIN_REPEATS else None
        axes.errorbar(range(len(value)), value, shown, elinewidth=0.8, capsize=2, label=label, **style)
    axes.set_xticks(range(len(round_trips)), [f"{each:g}" for each in round_trips])
    axes.set_xlabel(RTT)
    _ratio_axis(axes)


def _ratio_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [each for each in (RATIOS if high / low < 50 else FEW_RATIOS) if low <= each <= high]
    axes.set_yticks(ticks, [f"{each:g}" for each in ticks])
    axes.minorticks_off()


def _legend(figure: Figure, axes: Axes) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, handlelength=3)
