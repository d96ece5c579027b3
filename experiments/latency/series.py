"""What is drawn: numbers by round trip and draft length, the same for paper and page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from experiments.latency.cells import CHOSEN, Cell
from experiments.latency.predict import Model, Predicted
from experiments.latency.store import Run
from experiments.latency.summary import Summary
from specwhisper.speculation.draft_length import MAX_ADAPTIVE_GAMMA
from specwhisper.types import Mode

COLOURS = {  # colour-blind safe (Okabe and Ito)
    Mode.TARGET_ONLY: "#000000",
    Mode.SYNC: "#D55E00",
    Mode.PIPELINED: "#E69F00",
    Mode.FULL: "#0072B2",
    Mode.ONE_PROCESS: "#009E73",
}
PARTS = {"target's passes": "#0072B2", "draft": "#E69F00", "network": "#D55E00", "other waiting": "#BBBBBB"}
DRAFTING = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)


@dataclass(frozen=True)
class Curve:
    """Values over round trips, in passes of the target alone; ``low`` and ``high`` are a band, if any."""

    name: str
    mode: Mode
    steps: list[float]
    values: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Grid:
    """Values by round trip (columns) and draft length (rows); ``None`` where nothing was measured."""

    name: str
    steps: list[float]
    gammas: list[int]
    values: list[list[float | None]]


@dataclass(frozen=True)
class Bars:
    """What a token's time consists of, by mode and round trip."""

    labels: list[str]
    parts: dict[str, list[float]]


@dataclass(frozen=True)
class Drawing:
    """Everything that is drawn of a sweep; times over a pass of the target alone."""

    title: str
    measured: list[Curve]
    simulated: list[Curve]
    closed_form: list[Curve]
    grids: list[Grid]
    best_measured: list[Curve]
    best_predicted: list[Curve]
    time_parts: Bars


def draw(summary: Summary, predicted: Mapping[Cell, Predicted]) -> Drawing:
    """Gather what is drawn."""
    sweep = summary.sweep
    modes = [mode for mode in Mode if any(cell.mode is mode for cell in summary.times_s)]
    places = sorted(range(len(sweep.round_trips_s)), key=lambda place: sweep.round_trips_s[place])
    best = {(mode, place): _best(summary, mode, place) for mode in modes for place in places}
    models = sweep.header["models"]
    return Drawing(
        title=f"{models['target']}, {models['draft']}",
        measured=[_measured(summary, mode, places, best) for mode in modes],
        simulated=_predicted(summary, modes, places, best, predicted, lambda one: one.simulated_s),
        closed_form=_predicted(summary, modes, places, best, predicted, lambda one: one.closed_form_s),
        grids=[grid for mode in DRAFTING if (grid := _grid(summary, mode, places)).gammas],
        best_measured=[_best_gammas(summary, mode, places) for mode in DRAFTING if mode in modes],
        best_predicted=_best_predicted(summary, modes, places),
        time_parts=_time_parts(summary, modes, places, best),
    )


def _best(summary: Summary, mode: Mode, place: int) -> Cell | None:
    return summary.full(place) if mode is Mode.FULL else summary.best(mode, place)


def _measured(
    summary: Summary, mode: Mode, places: Sequence[int], best: Mapping[tuple[Mode, int], Cell | None]
) -> Curve:
    step_s = summary.sweep.step_s
    found = [(place, cell) for place in places if (cell := best[mode, place]) is not None]
    times = [[value / step_s for value in summary.times_s[cell].values()] for _, cell in found]
    return Curve(
        str(mode),
        mode,
        [summary.sweep.round_trips_s[place] / step_s for place, _ in found],
        [median(values) for values in times],
        [min(values) for values in times],
        [max(values) for values in times],
    )


def _predicted(
    summary: Summary,
    modes: Sequence[Mode],
    places: Sequence[int],
    best: Mapping[tuple[Mode, int], Cell | None],
    predicted: Mapping[Cell, Predicted],
    of: Callable[[Predicted], float | None],
) -> list[Curve]:
    """Give the predictions of the cells whose measurements are drawn."""
    step_s, curves = summary.sweep.step_s, []
    for mode in modes:
        points = []
        for place in places:
            cell = best[mode, place]
            if cell in predicted and (value := of(predicted[cell])) is not None:
                points.append((summary.sweep.round_trips_s[place] / step_s, value / step_s))
        if points:
            curves.append(Curve(str(mode), mode, *map(list, zip(*points, strict=True))))
    return curves


def _grid(summary: Summary, mode: Mode, places: Sequence[int]) -> Grid:
    """Give time per token over the target alone's at the same round trip."""
    gammas = sorted({c.gamma for c in summary.times_s if c.mode is mode and c.gamma != CHOSEN})

    def value(gamma: int, place: int) -> float | None:
        cell, alone = Cell(mode, gamma, place), Cell(Mode.TARGET_ONLY, CHOSEN, place)
        if cell not in summary.times_s or alone not in summary.times_s:
            return None
        return summary.median_s(cell) / summary.median_s(alone)

    steps = [summary.sweep.round_trips_s[place] / summary.sweep.step_s for place in places]
    return Grid(str(mode), steps, gammas, [[value(gamma, place) for place in places] for gamma in gammas])


def _best_gammas(summary: Summary, mode: Mode, places: Sequence[int]) -> Curve:
    found = [(p, cell.gamma) for p in places if (cell := summary.best(mode, p, fixed=True)) is not None]
    steps = [summary.sweep.round_trips_s[place] / summary.sweep.step_s for place, _ in found]
    return Curve(str(mode), mode, steps, [float(gamma) for _, gamma in found])


def _best_predicted(summary: Summary, modes: Sequence[Mode], places: Sequence[int]) -> list[Curve]:
    """Give the draft lengths that closed form (where a draft waits) and simulation find best."""
    model, curves = Model.of(summary.sweep), []
    for mode in (mode for mode in DRAFTING if mode in modes):
        steps, gammas = [], []
        for place in places:
            round_trip_s = summary.sweep.round_trips_s[place]
            predict = model.closed_form_s if mode is Mode.SYNC else model.simulated_s
            lengths = range(1, MAX_ADAPTIVE_GAMMA + 1) if mode is Mode.SYNC else (1, 2, 3, 4, 6, 8, 12, 16)
            times = {gamma: predict(mode, gamma, round_trip_s) for gamma in lengths}
            steps.append(round_trip_s / summary.sweep.step_s)
            gammas.append(float(min(times, key=lambda gamma: times[gamma])))
        curves.append(Curve(str(mode), mode, steps, gammas))
    return curves


def _time_parts(
    summary: Summary,
    modes: Sequence[Mode],
    places: Sequence[int],
    best: Mapping[tuple[Mode, int], Cell | None],
) -> Bars:
    """Divide the time of a token.

    Where draft, network and target take turns, their times add up; where they overlap, only the target's
    passes are told apart from the rest.
    """
    labels: list[str] = []
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    chosen = [place for place in places if place in {places[0], places[len(places) // 2], places[-1]}]
    for mode in modes:
        for place in chosen[:1] if mode is Mode.ONE_PROCESS else chosen:
            cell = best[mode, place]
            if cell is None:
                continue
            runs = [run for run in summary.sweep.runs if run.cell == cell]
            steps = "" if mode is Mode.ONE_PROCESS else f", {summary.steps(cell):.2g}"
            labels.append(f"{mode}{steps}")
            for name, value in _parts_of(runs, mode, summary.median_s(cell)).items():
                parts[name].append(value / summary.sweep.step_s)
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
