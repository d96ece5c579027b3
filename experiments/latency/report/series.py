"""Compute the data of a sweep's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan, nan
from statistics import median

from experiments.latency.cells import CHOSEN, Arm, Cell
from experiments.latency.prediction.predict import CostModel, Predicted
from experiments.latency.report.drawing import COLOURS, PARTS, Bars, Curve, Drawing, Grid
from experiments.latency.report.summary import Summary
from experiments.latency.sweep.store import Run
from specwhisper.errors import InvalidRequest
from specwhisper.speculation.draft_length import MAX_ADAPTIVE_GAMMA
from specwhisper.types import Mode

DRAFTING = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)


def draw(summary: Summary, predicted: Mapping[Cell, Predicted], *, seed: int) -> Drawing:
    """Compute all figures; refuse a sweep without target-only, to which times are relative."""
    sweep = summary.sweep
    places = [place for place in range(len(sweep.round_trips_s)) if summary.target_only(place) is not None]
    if not places:
        raise InvalidRequest(
            "The sweep has no target-only runs to compare with: add target-only to --modes, in another sweep."
        )
    places.sort(key=lambda place: sweep.round_trips_s[place])
    arms = [arm for arm in COLOURS if any(cell.arm == arm for cell in summary.times_s)]
    modes = list(dict.fromkeys(arm.mode for arm in arms))
    models = sweep.header["models"]
    return Drawing(
        title=f"{models['target']}, {models['draft']}",
        measured=[_measured(summary, arm, places, seed) for arm in arms],
        simulated=_predicted(summary, arms, places, predicted, lambda cell, one: one.simulations_s),
        closed_form=_predicted(summary, arms, places, predicted, _closed_forms_s),
        grids=[grid for mode in DRAFTING if (grid := _grid(summary, mode, places, seed)).gammas],
        best_measured=[best for mode in DRAFTING if (best := _best_gammas(summary, mode, places)).steps],
        best_predicted=_best_predicted(summary, modes, places) if predicted else [],
        time_parts=_time_parts(summary, modes, places),
    )


def _closed_forms_s(cell: Cell, one: Predicted) -> Mapping[int, float]:
    return one.closed_forms_s if cell.has_closed_form else {}


def _drawn(summary: Summary, arm: Arm, place: int) -> Cell | None:
    """Return the cell that is drawn for a mode at a round trip."""
    return summary.full(place, arm.hints) if arm.mode is Mode.FULL else summary.best(arm, place)


def _steps(summary: Summary, place: int) -> float:
    return summary.sweep.round_trips_s[place] / summary.sweep.step_s


def _measured(summary: Summary, arm: Arm, places: Sequence[int], seed: int) -> Curve:
    curve = Curve(arm, [], [])
    for place in places:
        cell, target_only = _drawn(summary, arm, place), summary.target_only(place)
        if (
            cell is None
            or target_only is None
            or (ratio := summary.ratio(cell, target_only, seed=seed)) is None
        ):
            continue
        curve.steps.append(_steps(summary, place))
        curve.values.append(ratio.value)
        curve.low.append(ratio.low)
        curve.high.append(ratio.high)
    return curve


def _predicted(
    summary: Summary,
    arms: Sequence[Arm],
    places: Sequence[int],
    predicted: Mapping[Cell, Predicted],
    of: Callable[[Cell, Predicted], Mapping[int, float]],
) -> list[Curve]:
    """Return predictions of the drawn cells, relative to target-only of the same repeats."""
    curves = []
    for arm in arms:
        values = [_prediction(summary, arm, place, predicted, of) for place in places]
        if not all(map(isnan, values)):
            curves.append(Curve(arm, [_steps(summary, place) for place in places], values))
    return curves


def _prediction(
    summary: Summary,
    arm: Arm,
    place: int,
    predicted: Mapping[Cell, Predicted],
    of: Callable[[Cell, Predicted], Mapping[int, float]],
) -> float:
    """Return one prediction, or NaN where there is none, so that the line has a gap."""
    cell, target_only = _drawn(summary, arm, place), summary.target_only(place)
    if cell is None or cell == target_only or target_only is None or cell not in predicted:
        return nan
    target_only_s, times_s = summary.times_s[target_only], of(cell, predicted[cell])
    shares = [times_s[repeat] / target_only_s[repeat] for repeat in times_s.keys() & target_only_s.keys()]
    return median(shares) if shares else nan


def _grid(summary: Summary, mode: Mode, places: Sequence[int], seed: int) -> Grid:
    """Return time per token relative to target-only at the same round trip."""
    gammas = sorted({c.gamma for c in summary.times_s if c.arm == Arm(mode) and c.gamma != CHOSEN})

    def value(gamma: int, place: int) -> float | None:
        cell, target_only = Cell(mode, gamma, place), summary.target_only(place)
        if cell not in summary.times_s or target_only is None:
            return None
        ratio = summary.ratio(cell, target_only, seed=seed)
        return None if ratio is None else ratio.value

    steps = [_steps(summary, place) for place in places]
    return Grid(str(mode), steps, gammas, [[value(gamma, place) for place in places] for gamma in gammas])


def _best_gammas(summary: Summary, mode: Mode, places: Sequence[int]) -> Curve:
    found = [(p, cell.gamma) for p in places if (cell := summary.best(Arm(mode), p, fixed=True)) is not None]
    steps = [_steps(summary, place) for place, _ in found]
    return Curve(Arm(mode), steps, [float(gamma) for _, gamma in found])


def _best_predicted(summary: Summary, modes: Sequence[Mode], places: Sequence[int]) -> list[Curve]:
    """Return the draft lengths that closed form (``sync``) or simulation find best."""
    model, curves = CostModel.of(summary.sweep), []
    for mode in (mode for mode in DRAFTING if mode in modes):
        gammas = []
        for place in places:
            round_trip_s = summary.sweep.round_trips_s[place]
            predict = model.closed_form_s if mode is Mode.SYNC else model.simulated_s
            lengths = range(1, MAX_ADAPTIVE_GAMMA + 1) if mode is Mode.SYNC else (1, 2, 3, 4, 6, 8, 12, 16)
            times = {gamma: predict(mode, gamma, round_trip_s) for gamma in lengths}
            gammas.append(float(min(times, key=lambda gamma: times[gamma])))
        curves.append(Curve(Arm(mode), [_steps(summary, place) for place in places], gammas))
    return curves


def _time_parts(summary: Summary, modes: Sequence[Mode], places: Sequence[int]) -> Bars:
    """Divide the time of a token into its parts.

    Where draft, network and target take turns, their times add up. Where they overlap, only the target's
    forward passes are separated from the rest.
    """
    labels: list[str] = []
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    chosen = [place for place in places if place in {places[0], places[len(places) // 2], places[-1]}]
    for mode in modes:
        for place in chosen[:1] if mode is Mode.ONE_PROCESS else chosen:
            cell, target_only = _drawn(summary, Arm(mode), place), summary.target_only(place)
            if cell is None or target_only is None:
                continue
            runs = [run for run in summary.sweep.runs if run.cell == cell]
            steps = "" if mode is Mode.ONE_PROCESS else f", {summary.steps(cell):.2g}"
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
