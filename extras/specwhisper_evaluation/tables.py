"""Lay a comparison out: tables for readers, plain values for JSON, a plot."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from specwhisper.errors import InvalidRequest
from specwhisper.extras import needs_extra
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper_evaluation.comparison import ComparedRecording, Comparison, MethodResults, error_rates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABELS = 30  # more names would overlap
COLOUR = "#2f6db5"
FACTS_OF_DRAFT = (
    *("acceptance_rate", "alpha", "mean_run", "num_corrections", "num_realigned"),
    *("tokens_per_forward", "acceptance_histogram"),
)


def table_of(comparison: Comparison) -> Table:
    count = len(comparison.references)
    recordings = f"{count} recording{'s' * (count != 1)}, {comparison.duration_s:.0f} s"
    caption = f"{comparison.speed_up:.2f} times as fast; {comparison.num_identical} of {count} identical"
    if len(comparison.speculative.seconds) > 1:
        mean = "batch" if len(comparison.speculative.seconds) < count else "recording"
        caption += f"\nper {mean} {comparison.speed_up_of_batches} times: mean and 95 % interval"
    if (counts := comparison.speculative.statistics).num_judged:
        caption += f"\nalpha {counts.alpha:.1%}, mean run {counts.mean_run:.1f} tokens"
        caption += f"; {counts.num_realigned} of {counts.num_corrections} corrections realigned"
    table = Table(
        "",
        "WER",
        "CER",
        "time",
        "real-time factor",
        "accepted",
        "tokens per pass",
        title=escape(f"{comparison.model.target} with {comparison.model.draft}: {recordings}"),
        caption=escape(caption),
    )
    for results in (comparison.standard, comparison.speculative):
        rates, counts = comparison.rates(results), results.statistics
        table.add_row(
            results.name,
            f"{rates.wer:.2%}",
            f"{rates.cer:.2%}",
            f"{results.elapsed_s:.1f} s",
            f"{results.elapsed_s / comparison.duration_s:.3f}",
            _accepted(counts),
            f"{counts.tokens_per_forward:.2f}",
        )
    return table


def recordings_table(comparison: Comparison) -> Table:
    """Return a table of the recordings, as the pair transcribed them.

    The target's own word error rates have a column if any of them differs.
    """
    rows = [(each, *_wers(each, comparison.language)) for each in comparison.recordings]
    has_own_rates = any(wer != standard_wer for _, wer, standard_wer in rows)
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0)
    table.caption = (
        "alpha: right tokens, of all written after a right text; run: right ones in a row; "
        "realigned: corrections after which the draft's next token was right"
    )
    table.add_column("recording", overflow="fold")
    rates = ("WER", "WER\nalone") if has_own_rates else ("WER",)
    drafted = ("accepted", "alpha", "run", "realigned", "tokens\nper pass")
    for heading in ("audio", *rates, "speed-up", *drafted, "same"):
        table.add_column(heading, justify="right", no_wrap=True)
    for recording, wer, standard_wer in rows:
        counts = recording.statistics
        table.add_row(
            escape(recording.name),
            f"{recording.speculative.duration_s:.1f} s",
            f"{wer:.1%}",
            *([f"{standard_wer:.1%}"] if has_own_rates else []),
            f"{recording.speed_up:.2f}",
            _accepted(counts),
            *((f"{counts.alpha:.1%}", f"{counts.mean_run:.1f}") if counts.num_judged else ("", "")),
            f"{counts.num_realigned} of {counts.num_corrections}" if counts.num_corrections else "",
            f"{counts.tokens_per_forward:.2f}",
            "yes" if recording.is_identical else "no",
        )
    return table


def facts(comparison: Comparison) -> dict[str, Any]:
    return {
        "language": comparison.language,
        "duration_s": comparison.duration_s,
        "model": asdict(comparison.model),
        "speed_up": comparison.speed_up,
        "speed_up_of_batches": asdict(comparison.speed_up_of_batches),
        "num_identical": comparison.num_identical,
        "references": comparison.references,
        "standard": _facts_of_method(comparison, comparison.standard),
        "speculative": _facts_of_method(comparison, comparison.speculative),
        "recordings": [_facts_of_recording(each, comparison.language) for each in comparison.recordings],
    }


def _facts_of_method(comparison: Comparison, results: MethodResults) -> dict[str, Any]:
    return {
        "name": results.name,
        **asdict(comparison.rates(results)),
        "elapsed_s": results.elapsed_s,
        **_facts_of_draft(results.statistics),
        "batch_seconds": results.seconds,
        "texts": results.texts,
    }


def _facts_of_recording(recording: ComparedRecording, language: str) -> dict[str, Any]:
    wer, standard_wer = _wers(recording, language)
    return {
        "name": recording.name,
        "duration_s": recording.speculative.duration_s,
        "wer": wer,
        "standard_wer": standard_wer,
        "elapsed_s": recording.speculative.elapsed_s,
        "standard_elapsed_s": recording.standard.elapsed_s,
        "speed_up": recording.speed_up,
        **_facts_of_draft(recording.statistics),
        "is_identical": recording.is_identical,
    }


def _facts_of_draft(counts: SpeculationStatistics) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in FACTS_OF_DRAFT}


def _accepted(counts: SpeculationStatistics) -> str:
    return f"{counts.acceptance_rate:.1%}" if counts.num_verified else ""


def _wers(recording: ComparedRecording, language: str) -> tuple[float, float]:
    """Return the word error rates of the pair and of the target alone."""
    texts = recording.speculative.text, recording.standard.text
    wer, standard_wer = (error_rates([recording.reference], [text], language).wer for text in texts)
    return wer, standard_wer


def check_plot() -> None:
    """Refuse a plot that could not be drawn, before anything is transcribed."""
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
