"""Plot acceptance and speed-up of each recording, with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from specwhisper.errors import InvalidRequest
from specwhisper.extras import needs_extra
from specwhisper_evaluation.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")
MAX_LABELS = 30  # more names would overlap
COLOUR = "#2f6db5"


def check_plot(path: Path) -> None:
    """Refuse a plot that could not be written, before anything is transcribed."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidRequest(f"--plot is '{path}': its name must end with {' or '.join(SUFFIXES)}.")
    with needs_extra("--plot", "evaluation"):
        import matplotlib  # noqa: F401


def plot(comparison: Comparison, path: Path) -> None:
    from matplotlib.figure import Figure

    recordings = comparison.recordings
    numbers = list(range(1, len(recordings) + 1))
    figure = Figure(figsize=(min(12.0, 5.0 + 0.3 * len(recordings)), 6.0), layout="constrained")
    model = comparison.model
    figure.suptitle(f"{model.target} with {model.draft}, {comparison.speculative.name}", fontsize=11)
    accepted, faster = figure.subplots(2, 1, sharex=True)
    bars = {"color": COLOUR, "width": 0.7 if len(recordings) <= MAX_LABELS else 1.0}
    accepted.bar(numbers, [100 * recording.statistics.acceptance_rate for recording in recordings], **bars)
    accepted.set(ylabel="accepted candidates (%)", ylim=(0, 100))
    faster.bar(numbers, [recording.speed_up for recording in recordings], **bars)
    faster.set(ylabel="speed-up")
    overall, speed_up = 100 * comparison.speculative.statistics.acceptance_rate, comparison.speed_up
    _mark(accepted, overall, f"all: {overall:.1f} %", "center")
    _mark(faster, speed_up, f"all: {speed_up:.2f}", "bottom" if speed_up >= 1 else "top")
    _mark(faster, 1.0, "target alone", "top" if speed_up >= 1 else "bottom")
    margin = 0.6 if len(recordings) > 1 else 1.5
    faster.set_xlim(1 - margin, len(recordings) + margin)
    if len(recordings) <= MAX_LABELS:
        names = [Path(recording.name).name for recording in recordings]
        faster.set_xticks(numbers, names, rotation=40, ha="right", rotation_mode="anchor", fontsize=9)
    else:
        faster.set_xlabel("recording, in the order of the table")
    figure.align_ylabels()
    try:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from error


def _mark(axes: Axes, value: float, label: str, side: Literal["top", "center", "bottom"]) -> None:
    """Draw a line at a value, with its label at the right, below, at or above it."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.axhline(value, color="black", linewidth=0.8, linestyle="--")
    axes.annotate(
        label,
        (1.0, value),
        (4, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va=side,
        fontsize=9,
        annotation_clip=False,
    )
