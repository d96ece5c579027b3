"""From runs to medians, ratios and bars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from experiments.common.report import Bar
from experiments.common.stats import Ratio, ratio_of_medians
from experiments.latency.cells import CHOSEN, Cell
from experiments.latency.predict import Predicted
from experiments.latency.store import Run, Sweep
from experiments.latency.sweep import MAX_NETWORK_SHARE
from specwhisper.types import Mode

STEPS = 1e-6  # two round trips that differ by less are the same


@dataclass(frozen=True)
class Summary:
    """What every cell took, repeat by repeat: seconds per token, over all recordings."""

    sweep: Sweep
    times_s: Mapping[Cell, Mapping[int, float]]

    @staticmethod
    def of(sweep: Sweep) -> Summary:
        """Gather the runs; those in which the network itself took too much of a core do not count."""
        gathered: dict[Cell, dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
        num_samples = len(sweep.header["asked"]["samples"])
        for run in sweep.runs:
            if run.facts["network_share"] <= MAX_NETWORK_SHARE:
                gathered[run.cell][run.repeat].append(run)
        times_s = {
            cell: {repeat: _over(runs) for repeat, runs in repeats.items() if len(runs) == num_samples}
            for cell, repeats in gathered.items()
        }
        return Summary(sweep, {cell: times for cell, times in times_s.items() if times})

    def steps(self, cell: Cell) -> float:
        """Give a cell's round trip in passes of the target alone."""
        return self.sweep.round_trips_s[cell.round_trip] / self.sweep.step_s

    def median_s(self, cell: Cell) -> float:
        """Give a cell's time per token."""
        return median(self.times_s[cell].values())

    def cells(self, mode: Mode, round_trip: int, cores: int = 1) -> list[Cell]:
        """Give the cells of a mode at a round trip."""
        return [c for c in self.times_s if (c.mode, c.round_trip, c.cores) == (mode, round_trip, cores)]

    def best(self, mode: Mode, round_trip: int, *, cores: int = 1, fixed: bool = False) -> Cell | None:
        """Give the fastest cell; with ``fixed``, of those whose draft length was set."""
        found = [c for c in self.cells(mode, round_trip, cores) if not fixed or c.gamma != CHOSEN]
        return min(found, key=self.median_s, default=None)

    def full(self, round_trip: int) -> Cell | None:
        """Give what a user gets of ``full``: the session's own choice, or else the best that was set."""
        chosen = Cell(Mode.FULL, CHOSEN, round_trip)
        return chosen if chosen in self.times_s else self.best(Mode.FULL, round_trip)

    def ratio(self, cell: Cell, reference: Cell, *, seed: int) -> Ratio:
        """Compare two cells over the repeats that both have."""
        ours, theirs = self.times_s[cell], self.times_s[reference]
        repeats = sorted(ours.keys() & theirs.keys())
        return ratio_of_medians([ours[r] for r in repeats], [theirs[r] for r in repeats], seed=seed)


def _over(runs: Sequence[Run]) -> float:
    """Give the time per token of several recordings together."""
    num_tokens = sum(run.facts["num_tokens"] for run in runs)
    return float(sum(run.time_per_token_s * run.facts["num_tokens"] for run in runs) / num_tokens)


def find_bars(summary: Summary, predicted: Mapping[Cell, Predicted], *, seed: int) -> list[Bar]:
    """Hold the sweep against what it must show."""
    bars = []

    def compare(name: str, cell: Cell | None, reference: Cell | None, bound: float) -> None:
        if cell is not None and reference is not None:
            ratio = summary.ratio(cell, reference, seed=seed)
            shown = f"{ratio} ({cell} over {reference})"
            bars.append(Bar(name, ratio.value, bound + 1e-9, shown))

    for place in range(len(summary.sweep.round_trips_s)):
        full = summary.full(place)
        if full is None:
            continue
        steps = summary.steps(full)
        at = f"at {steps:.2g} steps"
        alone = Cell(Mode.TARGET_ONLY, CHOSEN, place)
        alone_here = alone if alone in summary.times_s else None
        compare(f"full over target-only {at}", full, alone_here, 0.6 if steps <= 0.5 + STEPS else 1.05)
        sync = summary.best(Mode.SYNC, place, fixed=True)
        for limit, bound in ((0.5, 0.9), (5.0, 0.8), (10.0, 0.75)):
            if steps <= 0.5 + STEPS if limit == 0.5 else abs(steps - limit) < 0.01 * limit:
                compare(f"full over the best sync {at}", full, sync, bound)
        one_process = summary.best(Mode.ONE_PROCESS, place)
        if steps <= 0.25 + STEPS:
            compare(f"full over one process {at}", full, one_process, 1.0)
        elif abs(steps - 1.25) < 0.02:
            compare(f"full over one process {at}", full, one_process, 1.3)
    for mode, bound in ((Mode.FULL, 0.10), (Mode.SYNC, 0.15), (Mode.PIPELINED, 0.15)):
        errors = {
            cell: error
            for cell, prediction in predicted.items()
            if cell.mode is mode and (error := _error(summary, cell, prediction)) is not None
        }
        if errors:
            worst = max(errors, key=lambda cell: errors[cell])
            where = (
                f"{worst} at {summary.steps(worst):.2g} steps, {median(errors.values()):.1%} in the middle"
            )
            what = "the simulation" if mode is Mode.FULL else "the closed form"
            bars.append(
                Bar(
                    f"{mode} against {what}, largest error",
                    errors[worst],
                    bound,
                    f"{errors[worst]:.1%} ({where})",
                )
            )
    return bars


def _error(summary: Summary, cell: Cell, prediction: Predicted) -> float | None:
    """Tell how far a prediction lies from what was measured, by the median of the repeats' ratios."""
    measured_s = summary.times_s.get(cell)
    if measured_s is None:
        return None
    if cell.gamma == CHOSEN and cell.mode is not Mode.FULL:
        return None  # the closed forms know nothing of drafts that stop where they are not sure
    expected_s = prediction.simulations_s if cell.mode is Mode.FULL else prediction.closed_forms_s
    return abs(median(expected_s[repeat] / measured_s[repeat] for repeat in measured_s) - 1)


def print_tables(
    summary: Summary, predicted: Mapping[Cell, Predicted], console: Console, *, seed: int
) -> None:
    """Print time per token by round trip and mode: with the best draft length, and with those chosen."""
    cells = summary.times_s
    arms = sorted({(cell.mode, cell.cores) for cell in cells if cell.mode.drafts}, key=_order)
    if any(cell.mode.drafts and cell.gamma != CHOSEN for cell in cells):
        title = "Time per token over target-only's at the same round trip; best draft length that was set"
        table = _table(title, [_name(*arm) for arm in arms])
        for place, reference, row in _rows(summary):
            best = [summary.best(mode, place, cores=cores, fixed=True) for mode, cores in arms]
            shown = [f"{summary.ratio(c, reference, seed=seed)} ({c.gamma})" if c else "" for c in best]
            table.add_row(*row, *shown)
        console.print(table)
    if any(cell.mode.drafts and cell.gamma == CHOSEN for cell in cells):
        title = "The same, as sessions choose their draft length"
        is_simulated = any(cell.mode is Mode.FULL and cell.gamma == CHOSEN for cell in predicted)
        table = _table(title, [*(_name(*arm) for arm in arms), *["full, simulated"] * is_simulated])
        for place, reference, row in _rows(summary):
            chosen = [Cell(mode, CHOSEN, place, cores) for mode, cores in arms]
            shown = [str(summary.ratio(c, reference, seed=seed)) if c in cells else "" for c in chosen]
            if (full := predicted.get(Cell(Mode.FULL, CHOSEN, place))) and full.simulated_s:
                shown.append(f"{full.simulated_s / summary.median_s(reference):.2f}")
            table.add_row(*row, *shown)
        console.print(table)


def _order(arm: tuple[Mode, int]) -> tuple[int, int]:
    return list(Mode).index(arm[0]), arm[1]


def _name(mode: Mode, cores: int) -> str:
    return f"{mode}, 2 cores" if cores > 1 else str(mode)


def _table(title: str, names: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("round trip, steps", "ms", "target-only, ms", *names):
        table.add_column(name, justify="right")
    return table


def _rows(summary: Summary) -> Iterator[tuple[int, Cell, list[str]]]:
    """Give each round trip's place, the target alone at it, and how its row begins."""
    for place, round_trip_s in enumerate(summary.sweep.round_trips_s):
        reference = Cell(Mode.TARGET_ONLY, CHOSEN, place)
        if reference in summary.times_s:
            steps, alone_ms = round_trip_s / summary.sweep.step_s, 1e3 * summary.median_s(reference)
            yield place, reference, [f"{steps:.3g}", f"{1e3 * round_trip_s:.1f}", f"{alone_ms:.1f}"]
