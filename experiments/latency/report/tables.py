"""Print a sweep's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from experiments.latency.cells import CHOSEN, Arm, Cell, Hints
from experiments.latency.prediction.predict import Predicted
from experiments.latency.report.summary import Summary
from specwhisper.types import Mode


def print_tables(
    summary: Summary, predicted: Mapping[Cell, Predicted], console: Console, *, seed: int
) -> None:
    """Print time per token by round trip and mode, for set and for chosen draft lengths."""
    cells = summary.times_s
    spread = summary.repeats if summary.repeats == "n = 1" else f"95 % intervals, {summary.repeats}"
    all_arms = sorted({cell.arm for cell in cells} - {Arm(Mode.TARGET_ONLY)}, key=_order)
    arms = [arm for arm in all_arms if arm.mode.drafts]
    if any(cell.mode.drafts and cell.gamma != CHOSEN for cell in cells):
        title = (
            f"Time per token relative to target-only at the same round trip, {spread}; best set draft length"
        )
        table = _table(title, list(map(str, arms)))
        for place, reference, row in _rows(summary):
            best = [summary.best(arm, place, fixed=True) for arm in arms]
            shown = [f"{_over(summary, c, reference, seed)} ({c.gamma})" if c else "" for c in best]
            table.add_row(*row, *shown)
        console.print(table)
    if any(cell.mode.drafts and cell.gamma == CHOSEN for cell in cells):
        title = f"Time per token relative to target-only, {spread}; draft lengths that sessions choose"
        is_simulated = any(cell.mode is Mode.FULL and cell.gamma == CHOSEN for cell in predicted)
        table = _table(title, [*map(str, all_arms), *["full, simulated"] * is_simulated])
        for place, reference, row in _rows(summary):
            chosen = [Cell(arm.mode, CHOSEN, place, arm.cores, arm.hints) for arm in all_arms]
            shown = [_over(summary, c, reference, seed) if c in cells else "" for c in chosen]
            if (full := predicted.get(Cell(Mode.FULL, CHOSEN, place))) and full.simulated_s:
                shown.append(f"{full.simulated_s / summary.median_s(reference):.2f}")
            table.add_row(*row, *shown)
        console.print(table)


def _over(summary: Summary, cell: Cell, reference: Cell, seed: int) -> str:
    ratio = summary.ratio(cell, reference, seed=seed)
    return "" if ratio is None else str(ratio)


def _order(arm: Arm) -> tuple[int, int, int]:
    return list(Mode).index(arm.mode), arm.cores, list(Hints).index(arm.hints)


def _table(title: str, names: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("round trip, passes", "ms", "target-only, ms", *names):
        table.add_column(name, justify="right")
    return table


def _rows(summary: Summary) -> Iterator[tuple[int, Cell, list[str]]]:
    """Yield each round trip's index, its target-only cell and the first columns of its row."""
    for place, round_trip_s in enumerate(summary.sweep.round_trips_s):
        if (reference := summary.target_only(place)) is not None:
            steps, target_only_ms = round_trip_s / summary.sweep.step_s, 1e3 * summary.median_s(reference)
            yield place, reference, [f"{steps:.3g}", f"{1e3 * round_trip_s:.1f}", f"{target_only_ms:.1f}"]
