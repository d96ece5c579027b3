"""Compute the data of a sweep's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import median

from experiments.latency.cells import CHOSEN, Arm, Cell
from experiments.latency.prediction.predict import CostModel, Predicted
from experiments.latency.report.drawing import (
    PARTS,
    STYLES,
    Bars,
    BestGammas,
    Curve,
    Dots,
    Drawing,
    Grid,
    Tie,
    shown,
)
from experiments.latency.report.summary import Summary
from experiments.latency.sweep.store import Run
from specwhisper.errors import InvalidRequest
from specwhisper.speculation.comparison import Ratio
from specwhisper.speculation.draft_length import MAX_CHOSEN_GAMMA
from specwhisper.types import Mode

DRAFTING = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)
TIE = 1.02  # times within 2 % of the best one are as good
PREDICTED_GAMMAS = (1, 2, 3, 4, 6, 8, 12, 16)  # lengths that are simulated


def draw(summary: Summary, predicted: Mapping[Cell, Predicted], *, seed: int) -> Drawing:
    """Compute all figures; refuse a sweep without target-only, to which times are relative."""
    sweep = summary.sweep
    places = [place for place in range(len(sweep.round_trips_s)) if summary.target_only(place) is not None]
    if not places:
        raise InvalidRequest(
            "The sweep has no target-only runs to compare with: add target-only to --modes, in another sweep."
        )
    places.sort(key=lambda place: sweep.round_trips_s[place])
    arms = [arm for arm in STYLES if any(cell.arm == arm for cell in summary.times_s)]
    modes = list(dict.fromkeys(arm.mode for arm in arms))
    models = sweep.header["models"]
    ratios = _Ratios(summary, seed)
    return Drawing(
        title=f"{models['target']}, {models['draft']}",
        steps=[sweep.round_trips_s[place] / sweep.step_s for place in places],
        step_ms=1e3 * sweep.step_s,
        repeats=summary.repeats,
        drawn_repeats=summary.drawn_repeats,
        set_repeats=summary.set_repeats,
        lengths_are_chosen=summary.lengths_are_chosen,
        curves=[_curve(ratios, arm, places) for arm in arms if arm.mode.drafts],
        grids=[grid for mode in DRAFTING if (grid := _grid(ratios, summary.set_arm(mode), places)).gammas],
        best_measured=[
            best for mode in DRAFTING if any((best := _best(ratios, summary.set_arm(mode), places)).ties)
        ],
        best_predicted=_best_predicted(summary, modes, places) if predicted else [],
        simulated=_dots(ratios, arms, predicted, lambda cell, one: one.simulations_s),
        closed_form=_dots(ratios, arms, predicted, _closed_forms_s),
        time_parts=_time_parts(summary, modes, places),
    )


@dataclass(frozen=True)
class _Ratios:
    """Times per token relative to target-only at the same round trip."""

    summary: Summary
    seed: int

    def of(self, cell: Cell | None) -> Ratio | None:
        """Return a cell's ratio; ``None`` if it or its target-only was not measured."""
        if cell is None or cell not in self.summary.times_s:
            return None
        target_only = self.summary.target_only(cell.round_trip)
        return None if target_only is None else self.summary.ratio(cell, target_only, seed=self.seed)


def _curve(ratios: _Ratios, arm: Arm, places: Sequence[int]) -> Curve:
    curve = Curve(arm, [], [], [])
    for place in places:
        ratio = ratios.of(ratios.summary.drawn(arm, place))
        has_interval = ratio is not None and ratio.num_rounds > 1
        curve.values.append(nan if ratio is None else ratio.value)
        curve.low.append(ratio.low if ratio and has_interval else nan)
        curve.high.append(ratio.high if ratio and has_interval else nan)
    return curve


def _set_gammas(summary: Summary, arm: Arm) -> list[int]:
    return sorted({cell.gamma for cell in summary.times_s if cell.arm == arm and cell.gamma != CHOSEN})


def _grid(ratios: _Ratios, arm: Arm, places: Sequence[int]) -> Grid:
    gammas = _set_gammas(ratios.summary, arm)
    rows = [
        [ratios.of(Cell(arm.mode, gamma, place, hints=arm.hints)) for place in places] for gamma in gammas
    ]
    return Grid(arm, gammas, [[nan if ratio is None else ratio.value for ratio in row] for row in rows])


def _best(ratios: _Ratios, arm: Arm, places: Sequence[int]) -> BestGammas:
    """Return the best of the measured lengths, if there are several to choose from."""
    gammas, ties = _set_gammas(ratios.summary, arm), []
    for place in places:
        known = {gamma: ratios.of(Cell(arm.mode, gamma, place, hints=arm.hints)) for gamma in gammas}
        found = {gamma: ratio for gamma, ratio in known.items() if ratio is not None}
        ties.append(tie_of(found) if len(found) > 1 else None)
    return BestGammas(arm, ties)


def tie_of(ratios: Mapping[int, Ratio]) -> Tie:
    """Return the draft length of the lowest ratio, and those whose ratio is as low within noise."""
    best = min(ratios, key=lambda gamma: ratios[gamma].value)
    lowest = ratios[best]
    tied = [g for g, r in ratios.items() if r.value <= TIE * lowest.value or r.low <= lowest.high]
    return Tie(best, tied)


def _best_predicted(summary: Summary, modes: Sequence[Mode], places: Sequence[int]) -> list[BestGammas]:
    """Return the draft lengths that closed form (``sync``) or simulation find best."""
    model, found = CostModel.of(summary.sweep), []
    for mode in (mode for mode in DRAFTING if mode in modes):
        predict = model.closed_form_s if mode is Mode.SYNC else model.simulated_s
        gammas = range(1, MAX_CHOSEN_GAMMA + 1) if mode is Mode.SYNC else PREDICTED_GAMMAS
        ties: list[Tie | None] = []
        for place in places:
            round_trip_s = summary.sweep.round_trips_s[place]
            times_s = {gamma: predict(mode, gamma, round_trip_s) for gamma in gammas}
            ties.append(tie_of({gamma: Ratio(s, s, s, 1) for gamma, s in times_s.items()}))
        found.append(BestGammas(Arm(mode), ties))
    return found


def _closed_forms_s(cell: Cell, one: Predicted) -> Mapping[int, float]:
    return one.closed_forms_s if cell.has_closed_form else {}


def _dots(
    ratios: _Ratios,
    arms: Sequence[Arm],
    predicted: Mapping[Cell, Predicted],
    of: Callable[[Cell, Predicted], Mapping[int, float]],
) -> list[Dots]:
    """Return measured and predicted ratios of all predicted cells; both are over measured target-only."""
    summary, found = ratios.summary, []
    for arm in arms:
        dots = Dots(arm, [], [], [])
        for cell, one in predicted.items():
            expected_s = of(cell, one)
            if cell.arm != arm or not expected_s or (ratio := ratios.of(cell)) is None:
                continue
            dots.cells.append(f"{cell}, round trip {shown(summary.steps(cell))}")
            dots.measured.append(ratio.value)
            dots.predicted.append(ratio.value * summary.over_measured(cell, expected_s))
        if dots.cells:
            found.append(dots)
    return found


def _time_parts(summary: Summary, modes: Sequence[Mode], places: Sequence[int]) -> Bars:
    """Divide the time of a token into its parts.

    Where draft, network and target take turns, their times add up. Where they overlap, only the target's
    forward passes are separated from the rest.
    """
    labels: list[str] = []
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    chosen = [place for place in places if place in {places[0], places[len(places) // 2], places[-1]}]
    for mode in modes:
        for place in chosen if mode in DRAFTING else chosen[:1]:
            cell, target_only = summary.drawn(Arm(mode), place), summary.target_only(place)
            if cell is None or target_only is None:
                continue
            runs = [run for run in summary.sweep.runs if run.cell == cell]
            steps = f", {shown(summary.steps(cell))}" if mode in DRAFTING else ""
            labels.append(f"{mode}{steps}")
            for name, value in _parts_of(runs, mode, summary.median_s(cell)).items():
                parts[name].append(value / summary.median_s(target_only))
    return Bars(labels, parts)


def _parts_of(runs: Sequence[Run], mode: Mode, time_s: float) -> dict[str, float]:
    def per_token_s(name: str) -> float:
        return median(run.statistics[name] / 1e9 / run.facts["num_tokens"] for run in runs)

    passes_s = min(per_token_s("forward_ns"), time_s)
    takes_turns = mode in (Mode.SYNC, Mode.ONE_PROCESS)
    draft_s = min(per_token_s("draft_ns"), time_s - passes_s) if takes_turns else 0.0
    network_s = min(per_token_s("network_ns"), time_s - passes_s - draft_s) if mode is Mode.SYNC else 0.0
    rest_s = time_s - passes_s - draft_s - network_s
    return dict(zip(PARTS, (passes_s, draft_s, network_s, rest_s), strict=True))
