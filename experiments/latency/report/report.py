"""Report a sweep: facts, tables and bars on the terminal, figures as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.common.bench.report import Bar, print_bars, write_json
from experiments.common.replay.trace import Trace
from experiments.latency.cells import Cell
from experiments.latency.prediction.fit import acceptance_of, realigned_of
from experiments.latency.prediction.predict import CostModel, Predicted, costs_facts, describe_costs, predict
from experiments.latency.report.bars import find_bars, find_notes
from experiments.latency.report.summary import Summary
from experiments.latency.report.tables import print_tables
from experiments.latency.simulation.world import Costs
from experiments.latency.sweep.origin import describe_origins
from experiments.latency.sweep.store import Store, Sweep
from specwhisper.errors import InvalidRequest


@dataclass(frozen=True)
class SweepReport:
    """A sweep with its summary, fitted costs and predictions.

    Attributes
    ----------
    sweep : with all its runs, including those that do not count.
    predicted : by cell; empty under conditions that no prediction models.
    """

    sweep: Sweep
    summary: Summary
    costs: Costs
    predicted: Mapping[Cell, Predicted]

    @staticmethod
    def of(path: Path) -> SweepReport:
        """Load a sweep and predict its cells."""
        sweep = Store(path).load()
        summary = Summary.of(sweep)
        if not summary.times_s:
            raise InvalidRequest(f"{path} has no run that counts yet: continue the sweep first.")
        predicted = {} if sweep.conditions.not_modelled else predict(summary.sweep, summary.times_s)
        return SweepReport(sweep, summary, CostModel.of(summary.sweep).costs, predicted)

    def facts(self) -> list[str]:
        """Describe in a line each: texts, fitted costs, excluded runs and origin."""
        num_same, num_runs = len(self.sweep.runs) - len(self.sweep.different), len(self.sweep.runs)
        num_discarded = num_runs - len(self.summary.sweep.runs)
        decodings = Trace.parse(self.sweep.header["trace"], "The sweep").decodings
        lines = [
            f"Texts equal to the target's: {num_same} of {num_runs}.",
            f"In these texts the draft is right in {acceptance_of(decodings):.0%} of the tokens, and what it "
            f"drafts after a wrong one is the target's next token in {realigned_of(decodings):.0%}.",
        ]
        if self.costs.draft.pass_s:  # without drafts constant and per-token part cannot be separated
            lines.append(f"Fitted: {describe_costs(self.costs, self.sweep.step_s)}.")
        if num_discarded:
            lines.append(
                f"Runs excluded because the network's process used too much of a core: {num_discarded}."
            )
        if not_modelled := self.sweep.conditions.not_modelled:
            lines.append(
                f"No predictions: neither simulation nor closed forms model {', '.join(not_modelled)}."
            )
        return [*lines, f"Measured at {describe_origins(run.origin for run in self.sweep.runs)}."]

    def bars(self, seed: int) -> list[Bar]:
        """Return the bars of ``--check``."""
        return find_bars(self.summary, self.predicted, seed=seed)

    def notes(self, seed: int) -> list[str]:
        """Return the comparisons without a bar."""
        return find_notes(self.summary, seed=seed)


def report(path: Path, console: Console, *, seed: int, json: Path | None, check: bool) -> bool:
    """Print a sweep; return whether all texts, and with ``check`` all bars, hold."""
    found = SweepReport.of(path)
    for line in found.facts():
        console.print(line, highlight=False, soft_wrap=True)
    print_tables(found.summary, found.predicted, console, seed=seed)
    for run in found.sweep.different:
        console.print(f"DIFFERENT: {run}: the text differs from the target's", style="red", highlight=False)
    if json is not None:
        write_json(json, models=found.sweep.header["models"], figures=_figures(found, seed))
    all_hold = _check(found, console, seed) if check else True
    return all_hold and not found.sweep.different


def _check(found: SweepReport, console: Console, seed: int) -> bool:
    bars = found.bars(seed)
    all_hold = print_bars(bars, console)
    for note in found.notes(seed):
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if not bars:
        console.print(
            "--check finds no bar for this sweep: measure full beside target-only, sync or "
            "one-process at a round trip that has a bar.",
            style="red",
            highlight=False,
            soft_wrap=True,
        )
    return all_hold and bool(bars)


def _figures(found: SweepReport, seed: int) -> dict[str, Any]:
    header = {n: value for n, value in found.sweep.header.items() if n not in ("trace", "models", "texts")}
    origins = sorted({run.origin for run in found.sweep.runs})
    return {
        "sweep": header,
        "origins": [origin.facts() for origin in origins],
        "texts": {"runs": len(found.sweep.runs), "different": list(map(str, found.sweep.different))},
        "fitted": costs_facts(found.costs),
        "cells": [
            {
                "cell": str(cell),
                "round_trip_steps": found.summary.steps(cell),
                "times_per_token_s": list(times.values()),
                **_predictions(cell, found.predicted.get(cell)),
            }
            for cell, times in found.summary.times_s.items()
        ],
        "bars": list(map(str, found.bars(seed))),
        "for_information": found.notes(seed),
    }


def _predictions(cell: Cell, predicted: Predicted | None) -> dict[str, float | None]:
    if predicted is None:
        return {"closed_form_s": None, "simulated_s": None}
    closed_form_s = predicted.closed_form_s if cell.has_closed_form else None
    return {"closed_form_s": closed_form_s, "simulated_s": predicted.simulated_s}
