"""Captions of a sweep's figures: the one source for page, captions file and docs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.latency.report.bars import CLOSED_FORM_BOUND, SIMULATION_BOUND
from experiments.latency.report.drawing import HEAT_LIMIT, Drawing, percent
from experiments.latency.report.series import TIE

RELATIVE = "Times are relative to those of target-only at the same round trip: below 1 is faster."


@dataclass(frozen=True, slots=True)
class Caption:
    """Title and text of a figure.

    Attributes
    ----------
    name : the figure's file, without suffix.
    """

    name: str
    title: str
    text: str


def captions_of(drawing: Drawing) -> list[Caption]:
    """Return a caption for each figure that has data, in their order."""
    found = [_modes(drawing)]
    if drawing.grids:
        found.append(_gamma(drawing))
    if drawing.best_gammas:
        found.append(_best_gamma(drawing))
    if drawing.predictions:
        found.append(_predictions(drawing))
    return [*found, _where(drawing)]


def write_captions(drawing: Drawing, path: Path) -> None:
    """Write all figures with their captions as Markdown."""
    figures = [
        f"![{one.title}]({one.name}.png)\n\n*{one.title}.* {one.text}\n" for one in captions_of(drawing)
    ]
    path.write_text("\n".join(figures))


def _lengths(drawing: Drawing) -> str:
    """Return what gamma means in a figure without an axis of draft lengths."""
    if drawing.lengths_are_chosen:
        return "All sessions choose their draft length (gamma) themselves."
    return "Each mode has the fastest of the set draft lengths (gamma)."


def _modes(drawing: Drawing) -> Caption:
    panels = " Left: the modes. Right: full, by the hints that the target has." * (len(drawing.panels) > 1)
    intervals = (
        f"Error bars are 95 % intervals of resampled repeats, {drawing.drawn_repeats}."
        if drawing.has_intervals
        else f"One repeat, {drawing.drawn_repeats}, has no interval."
    )
    return Caption(
        "latency-modes",
        "Time per token by round trip, mode and hints",
        f"{RELATIVE}{panels} {_lengths(drawing)} Round trips are evenly spaced; times are logarithmic. "
        f"{intervals}",
    )


def _gamma(drawing: Drawing) -> Caption:
    return Caption(
        "latency-gamma",
        "Time per token by round trip and draft length",
        f"{RELATIVE} All draft lengths (gamma) are set. Colours are logarithmic and end at "
        f"{1 / HEAT_LIMIT:g} and {HEAT_LIMIT:g}: blue is faster than target-only, red slower; "
        f"{drawing.set_repeats}.",
    )


def _best_gamma(drawing: Drawing) -> Caption:
    return Caption(
        "latency-best-gamma",
        "The best draft length by round trip",
        "The set draft length (gamma) with the least time per token. A bar spans the lengths that tie with "
        f"it, each of them a dash: the times differ by at most {percent(TIE - 1)}, or their 95 % intervals "
        "overlap. Measured: among the lengths tried. Predicted: by the closed form for sync, by the "
        f"simulation for pipelined and full; {drawing.set_repeats}.",
    )


def _predictions(drawing: Drawing) -> Caption:
    return Caption(
        "latency-predictions",
        "Predictions against measurements",
        f"{RELATIVE} Each symbol is a measured combination of drafting mode, hints, round trip and draft "
        "length (gamma). On the line a prediction is exact. Shaded are errors "
        f"of at most {percent(SIMULATION_BOUND)} for the simulation and {percent(CLOSED_FORM_BOUND)} for the "
        "closed forms, which do not exist for sync, pipelined and one-process where sessions choose the "
        f"length, and for hints from outside; {drawing.repeats}.",
    )


def _where(drawing: Drawing) -> Caption:
    return Caption(
        "latency-where",
        "Where the time of a token goes",
        f"{RELATIVE} {_lengths(drawing)} Shown are the first, the middle and the last round trip. In sync "
        "and one-process, draft, network and target take turns, so their times add up. In pipelined and full "
        "they overlap: other waiting is all time outside the target's forward passes. The line at 1 is "
        f"target-only; {drawing.drawn_repeats}.",
    )
