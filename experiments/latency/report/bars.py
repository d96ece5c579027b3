"""Bars of a sweep: the ratios and prediction errors that it must stay below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from operator import attrgetter
from statistics import median

from experiments.common.bench.report import Bar
from experiments.latency.cells import Arm, Cell, Hints
from experiments.latency.prediction.predict import Predicted
from experiments.latency.report.summary import Summary
from experiments.latency.sweep.models import CHOSEN_ERRORS
from specwhisper.types import Mode

# Round trips in forward passes, and the time of a token in ``full`` over target-only: goals for draft-tiny.
FULL_BOUNDS = ((0, 0.42), (0.25, 0.42), (0.5, 0.44), (1.25, 0.48), (2.5, 0.55), (5, 0.65), (10, 0.80))
GIVEN_BOUND, ADVERSARIAL_BOUND = 0.35, 1.02  # of full with other hints
MOST = 1.02  # of full over target-only, with any draft
SIMULATION_BOUND, CLOSED_FORM_BOUND = 0.10, 0.15  # of the prediction's error
ALIKE = 1e-6  # tolerance when round trips are compared, in forward passes


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares the fastest cells of two sets; their ratio must stay below ``bound``."""

    name: str
    cells: Sequence[Cell]
    references: Sequence[Cell]
    bound: float


def find_bars(summary: Summary, predicted: Mapping[Cell, Predicted], *, seed: int) -> list[Bar]:
    """Return a bar for each claim whose cells were requested.

    A bar fails where one of its cells was not measured. Predictions have bars only under conditions that they
    model.
    """
    bars = []
    for comparison in _comparisons(summary):
        value, shown = _compare(summary, comparison, seed)
        bars.append(Bar(comparison.name, value, comparison.bound + 1e-9, shown))
    return bars if summary.sweep.conditions.not_modelled else bars + _prediction_bars(summary, predicted)


def find_notes(summary: Summary, *, seed: int) -> list[str]:
    """Return comparisons without a bar: ``full`` against ``one-process`` on two cores.

    There the target has twice the cores of a split service's target.
    """
    notes = []
    for place, steps in enumerate(_all_steps(summary)):
        full = summary.requested_full(place)
        both_cores = summary.requested(Arm(Mode.ONE_PROCESS, 2), place)
        if full and both_cores and _one_process_bound(steps) is not None:
            name = f"full over one process on two cores, {steps:.3g} passes (for information)"
            _, shown = _compare(summary, Comparison(name, full, both_cores, nan), seed)
            notes.append(f"{name}: {shown}")
    return notes


def _comparisons(summary: Summary) -> Iterator[Comparison]:
    for place, steps in enumerate(_all_steps(summary)):
        full = summary.requested_full(place)
        target_only = summary.requested(Arm(Mode.TARGET_ONLY), place)
        has_pairs_errors = CHOSEN_ERRORS not in summary.sweep.header["models"]["draft"]
        claims = (
            ("target-only", target_only, _full_bound(steps) if has_pairs_errors else MOST),
            ("the best sync", summary.requested(Arm(Mode.SYNC), place, fixed=True), _sync_bound(steps)),
            (
                "one process on one core",
                summary.requested(Arm(Mode.ONE_PROCESS), place),
                _one_process_bound(steps),
            ),
        )
        for name, references, bound in claims:
            if full and references and bound is not None:
                yield Comparison(f"full over {name} at {steps:.3g} passes", full, references, bound)
        for hints, bound in ((Hints.GIVEN, GIVEN_BOUND), (Hints.ADVERSARIAL, ADVERSARIAL_BOUND)):
            if target_only and (cells := summary.requested_full(place, hints)):
                name = f"{Arm(Mode.FULL, hints=hints)} over target-only at {steps:.3g} passes"
                yield Comparison(name, cells, target_only, bound)
        hinted = Arm(Mode.TARGET_ONLY, hints=Hints.ADVERSARIAL)
        if target_only and (cells := summary.requested(hinted, place)):
            name = f"{hinted} over target-only at {steps:.3g} passes"
            yield Comparison(name, cells, target_only, ADVERSARIAL_BOUND)


def _full_bound(steps: float) -> float | None:
    """Return the bound of ``full`` over target-only, of the nearest round trip that has one."""
    return next((bound for limit, bound in FULL_BOUNDS if abs(steps - limit) <= 0.02 * limit + ALIKE), MOST)


def _sync_bound(steps: float) -> float | None:
    if steps <= 0.5 + ALIKE:
        return 0.9
    far = ((5.0, 0.8), (10.0, 0.75))
    return next((bound for limit, bound in far if abs(steps - limit) < 0.01 * limit), None)


def _one_process_bound(steps: float) -> float | None:
    if steps <= 0.25 + ALIKE:
        return 1.0
    return 1.3 if abs(steps - 1.25) < 0.02 else None


def _all_steps(summary: Summary) -> list[float]:
    return [round_trip_s / summary.sweep.step_s for round_trip_s in summary.sweep.round_trips_s]


def _compare(summary: Summary, comparison: Comparison, seed: int) -> tuple[float, str]:
    """Return a ratio and its text; NaN where a cell is missing."""
    cells, references = comparison.cells, comparison.references
    for cell in (*cells, *references):
        if cell not in summary.times_s:
            return nan, f"n/a ({cell} was not measured)"
    cell, reference = min(cells, key=summary.median_s), min(references, key=summary.median_s)
    ratio = summary.ratio(cell, reference, seed=seed)
    if ratio is None:
        return nan, f"n/a (no repeat has both {cell} and {reference})"
    return ratio.value, f"{ratio} ({cell} over {reference})"


def _prediction_bars(summary: Summary, predicted: Mapping[Cell, Predicted]) -> list[Bar]:
    """Return bars of every mode against the simulation, and against the closed form where there is one."""
    bars = []
    for mode in (Mode.FULL, Mode.SYNC, Mode.PIPELINED):
        cells = [cell for cell in summary.sweep.requested_cells if cell.mode is mode]
        with_form = [cell for cell in cells if cell.has_closed_form]
        for what, bound, of, expected_s in (
            ("the simulation", SIMULATION_BOUND, cells, attrgetter("simulations_s")),
            ("the closed form", CLOSED_FORM_BOUND, with_form, attrgetter("closed_forms_s")),
        ):
            name = f"{mode} against {what}, largest error"
            missing = next((cell for cell in of if cell not in predicted), None)
            if missing is not None:
                bars.append(Bar(name, nan, bound, f"n/a ({missing} was not measured)"))
            elif of:
                errors = {c: abs(summary.over_measured(c, expected_s(predicted[c])) - 1) for c in of}
                worst = max(errors, key=lambda cell: errors[cell])
                where = f"{worst} at {summary.steps(worst):.3g} passes, median {median(errors.values()):.1%}"
                bars.append(Bar(name, errors[worst], bound, f"{errors[worst]:.1%} ({where})"))
    return bars
