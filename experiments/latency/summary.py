"""Summarise a grid: times over target-only's, the round trips that texts waited for, its bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from experiments.common.audio.conditions import Condition
from experiments.common.bench.report import Bar, none
from experiments.common.replay.trace import Trace
from experiments.latency.cells import Arm, Cell, Grid
from experiments.latency.prediction import (
    Predictor,
    acceptance_of,
    is_predicted,
    mean_run_of,
    realigned_of,
)
from specwhisper.types import Mode
from specwhisper_client.cli.advice import Ratio

FULL = Arm(Mode.FULL)
NEAR_MS, NEAR_BOUND, FAR_MS, FAR_BOUND = 100.0, 0.35, 400.0, 0.45  # full on clean speech, base and tiny.en
MOST = 1.02  # full over target-only, in any condition
MOST_WAITS = 3.0  # round trips that a text waits for
WAITS_FROM_MS = 50.0  # below, a round trip is within the spread of an utterance
SIMULATION_BOUND = 0.10  # error of a prediction
BUNDLED = "demo-"  # names of models that the bars of the real pair are not for
DECODING, WHOLE = "decoding_s", "wall_s"


@dataclass(frozen=True)
class Summary:
    """A grid's runs that count, added up over the recordings of a cell."""

    grid: Grid

    @cached_property
    def cells(self) -> list[Cell]:
        return sorted({run.cell for run in self.grid.runs if run.counts})

    def times_s(self, cell: Cell, what: str) -> dict[int, float]:
        found = self._times_s.get((cell, what), {})
        samples = set(self.grid.header["samples"][cell.condition])
        return {repeat: sum(each.values()) for repeat, each in found.items() if set(each) == samples}

    @cached_property
    def _times_s(self) -> dict[tuple[Cell, str], dict[int, dict[str, float]]]:
        times_s: dict[tuple[Cell, str], dict[int, dict[str, float]]] = {}
        for run in self.grid.runs:
            if run.counts:
                for what in (DECODING, WHOLE):
                    of_cell = times_s.setdefault((run.cell, what), {})
                    of_cell.setdefault(run.repeat, {})[run.sample] = run.facts[what]
        return times_s

    def over(self, cell: Cell, reference: Cell, what: str = DECODING) -> Ratio | None:
        """Return the time of a cell over that of another one, by the repeats that both have."""
        ours, theirs = self.times_s(cell, what), self.times_s(reference, what)
        common = sorted(set(ours) & set(theirs))
        if not common:
            return None
        return Ratio.paired([ours[repeat] for repeat in common], [theirs[repeat] for repeat in common])

    def waits(self, cell: Cell, of: Callable[[Iterable[float]], float] = median) -> float | None:
        """Return how many round trips an utterance waited for.

        Its time from first audio to last text, minus that at the shortest round trip, in round trips.

        Parameters
        ----------
        of : the repeats.
        """
        nearest_ms = min(each.rtt_ms for each in self.cells)
        near = self.times_s(Cell(cell.condition, nearest_ms, cell.arm), WHOLE)
        here = self.times_s(cell, WHOLE)
        if not near or not here or cell.rtt_ms <= nearest_ms:
            return None
        num = len(self.grid.header["samples"][cell.condition])
        between_s = (cell.rtt_ms - nearest_ms) / 1e3
        return (of(here.values()) - of(near.values())) / num / between_s

    @cached_property
    def predictor(self) -> Predictor:
        return Predictor.of(self.grid)

    @cached_property
    def predicted(self) -> dict[Cell, float]:
        """The simulation's decoding over target-only, by cell."""
        predicted = [cell for cell in self.cells if is_predicted(cell)]
        needed = {*predicted, *(cell.target_only for cell in predicted)}
        simulated_s = {cell: self._simulated_s(cell) for cell in needed}
        return {cell: simulated_s[cell] / simulated_s[cell.target_only] for cell in predicted}

    def _simulated_s(self, cell: Cell) -> float:
        samples = self.grid.header["samples"][cell.condition]
        return sum(self.predictor.simulated_s(cell.arm, cell.rtt_ms, sample) for sample in samples)

    def speech(self) -> dict[str, dict[str, float]]:
        trace: Trace = self.grid.header["trace"]
        found = {}
        for condition, names in self.grid.header["samples"].items():
            here = [one for one in trace.decodings if one.recording in names]
            found[condition] = {
                "acceptance": acceptance_of(here),
                "realigned": realigned_of(here),
                "mean_run": mean_run_of(here),
                "num_tokens": sum(len(one.tokens) for one in here),
            }
        return found

    def facts(self) -> dict[str, Any]:
        return {
            **{name: self.grid.header[name] for name in ("pair", "samples", "machine", "versions")},
            "speech": self.speech(),
            "costs": self.predictor.facts(),
            "num_runs": len(self.grid.runs),
            "num_different": len(self.grid.different),
            "cells": [self._cell_facts(cell) for cell in self.cells],
        }

    def _cell_facts(self, cell: Cell) -> dict[str, Any]:
        arm = cell.arm
        found: dict[str, Any] = {"condition": cell.condition, "rtt_ms": cell.rtt_ms, "mode": arm.mode}
        found |= {"gamma": arm.gamma, "has_hint": arm.has_hint, "waits": self.waits(cell)}
        for what in (DECODING, WHOLE):
            found[what] = list(self.times_s(cell, what).values())
            ratio = self.over(cell, cell.target_only, what)
            found[f"{what[:-2]}_over_target_only"] = ratio and [ratio.value, ratio.low, ratio.high]
        if cell in self.predicted:
            found["simulated"] = self.predicted[cell]
        return found

    def bars(self) -> Iterator[Bar]:
        """Yield a bar for each claim whose cells were measured."""
        is_bundled = self.grid.header["pair"]["target"].startswith(BUNDLED)
        yield none("texts that differ from the target's", len(self.grid.different))
        for cell in self.cells:
            ratio = self.over(cell, cell.target_only)
            if cell.arm != FULL or ratio is None:
                continue
            bound = MOST
            if cell.condition is Condition.CLEAN and not is_bundled:
                bound = NEAR_BOUND if cell.rtt_ms <= NEAR_MS else FAR_BOUND if cell.rtt_ms <= FAR_MS else MOST
            # Noise may break a bar that holds: the lower end of the interval counts.
            name = f"full over target-only, decoding, {cell.condition}, {cell.rtt_ms:g} ms"
            yield Bar(name, ratio.low, bound, f"{ratio}")
            waits = self.waits(cell)
            has_bar = cell.condition is Condition.CLEAN and not is_bundled and cell.rtt_ms >= WAITS_FROM_MS
            if waits is not None and has_bar:
                name = f"round trips that an utterance waited for in full, {cell.rtt_ms:g} ms"
                # Other work on the machine only adds to a time.
                fastest = self.waits(cell, min) or 0.0
                yield Bar(name, fastest, MOST_WAITS, f"{waits:.2f}, {fastest:.2f} in the fastest repeats")
        if not is_bundled:
            yield from self._prediction_bars()

    def _prediction_bars(self) -> Iterator[Bar]:
        for mode in (Mode.FULL, Mode.SYNC, Mode.PIPELINED):
            errors = {
                cell: abs(expected / ratio.value - 1)
                for cell, expected in self.predicted.items()
                if cell.arm.mode is mode and (ratio := self.over(cell, cell.target_only))
            }
            if errors:
                worst = max(errors, key=lambda cell: errors[cell])
                middle = f"{median(errors.values()):.1%} in the middle"
                shown = f"{errors[worst]:.1%} at worst ({worst}), {middle}"
                yield Bar(f"error of the simulation of {mode}", errors[worst], SIMULATION_BOUND, shown)
