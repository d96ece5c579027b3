"""Fits, predictions, bars and figures of a simulated sweep."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import product
from math import isnan

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.common.replay.trace import Trace
from experiments.latency.__main__ import app
from experiments.latency.cells import CHOSEN, Arm, Cell, cells_of
from experiments.latency.prediction.fit import acceptance_of, fit_costs, survival_of
from experiments.latency.prediction.predict import predict
from experiments.latency.report.bars import find_bars, find_notes
from experiments.latency.report.figures import write_figures
from experiments.latency.report.series import draw
from experiments.latency.report.summary import Summary
from experiments.latency.report.tables import print_tables
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session
from experiments.latency.sweep.store import Run, Store, Sweep
from specwhisper.errors import InvalidRequest
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode
from tests.unit.experiments.latency.test_latency_simulation import decoding

COSTS = Costs(target=Cost(0.048, 0.002), draft=Cost(0.01), message_s=0.001)
STEPS = (0.0, 1.25, 5.0)
MODES = (Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL)
STALLED = '{"round_trip_s": 0.0}', '{"stall_s": 0.5, "stall_every_s": 5}'
FULL_SIMULATED = "full against the simulation, largest error"
DECODINGS = tuple(decoding(*[hash((i, seed)) % 6 != 0 for i in range(90)]) for seed in range(2))


@pytest.fixture(scope="module")
def vocabulary():
    return load_checkpoint("demo-target").vocabulary


@pytest.fixture(scope="module")
def header(tmp_path_factory, vocabulary):
    trace = Trace("demo-target", "demo-draft-tiny", "", "", vocabulary.digest, "", DECODINGS)
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    trace.save(path)
    return {
        "models": {"target": "simulated", "draft": "simulated"},
        "conditions": {"round_trip_s": 0.0},
        "network": "none",
        "request": {
            "modes": list(MODES),
            "gammas": [2, CHOSEN],
            "max_cores": 1,
            "hints": ["realigned"],
            "samples": ["one"],
        },
        "step_s": 0.05,
        "round_trips_s": [0.05 * steps for steps in STEPS],
        "trace": path.read_text(),
        "texts": {"one": [1, 2, 3]},
        "machine": {"cpu": "none", "cores": 1},
        "versions": {"torch": "none"},
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("sweep") / "sweep.jsonl"


@pytest.fixture(scope="module")
def store(path, header, vocabulary):
    """A sweep with two repeats of every cell, the second 1 % slower."""
    store = Store(path)
    store.begin(header)
    for cell in cells_of(MODES, [2, CHOSEN], len(STEPS), max_cores=1):
        length = DraftLength(cell.mode, cell.gamma or None)
        session = simulate_session(
            DECODINGS, vocabulary, COSTS, length, round_trip_s=0.05 * STEPS[cell.round_trip]
        )
        for repeat in range(2):
            facts = {
                "time_per_token_s": session.time_per_token_s * (1 + 0.01 * repeat),
                "num_tokens": session.statistics.num_committed,
                "network_share": 0.01,
                "is_same": True,
                "commit": "a1b2c3",
                "machine": "none, 1 cores",
                "statistics": asdict(session.statistics),
            }
            store.append(Run(repeat, cell, "one", facts))
    return store


@pytest.fixture(scope="module")
def predicted(store):
    summary = Summary.of(store.load())
    return predict(summary.sweep, summary.times_s)


def test_fitted_costs_equal_the_simulated_ones(store):
    found = fit_costs(store.load())
    assert found.target.pass_s == pytest.approx(COSTS.target.pass_s, rel=0.02)
    assert found.target.token_s == pytest.approx(COSTS.target.token_s, rel=0.15)
    assert found.draft.pass_s == pytest.approx(COSTS.draft.pass_s, rel=0.05)
    assert found.message_s == pytest.approx(COSTS.message_s, rel=0.5)


@pytest.mark.parametrize("modes", [[Mode.TARGET_ONLY], [Mode.TARGET_ONLY, Mode.FULL], [Mode.PIPELINED]])
def test_a_sweep_with_some_modes_can_be_fitted(store, modes):
    sweep = store.load()
    found = fit_costs(sweep, [run for run in sweep.runs if run.cell.mode in modes])
    assert found.target.of(1, 1) == pytest.approx(COSTS.target.of(1, 1), rel=0.2)
    assert found.message_s == 0  # unknown costs are 0
    if any(mode.drafts for mode in modes):
        assert found.draft.pass_s == pytest.approx(COSTS.draft.pass_s, rel=0.5)


def test_survival_is_counted_by_runs_or_by_blocks():
    assert survival_of([decoding(True, True, False, True)]) == [1, 1 / 2, 1 / 2]  # runs of three and of one
    assert survival_of([decoding(True, True, False, True)], gamma=1) == [1, 1 / 3]  # blocks of two, one, one
    once = decoding(True, True, False, True)
    assert survival_of([once, once], first=2) == survival_of([once])  # the first run has three tokens
    assert survival_of([once, once], first=3) == [1, 1 / 3, 1 / 3]  # it is left out once per recording
    assert acceptance_of([decoding(True, True, False, True)]) == 3 / 4


def test_predictions_match_the_simulated_sweep(store, predicted):
    summary = Summary.of(store.load())
    for cell, prediction in predicted.items():
        assert prediction.simulated_s == pytest.approx(summary.median_s(cell), rel=0.05)
    bars = find_bars(summary, predicted, seed=0)
    named = {bar.name: bar for bar in bars}
    assert named["full against the simulation, largest error"].holds
    near, far = (named[f"full over target-only at {steps} passes"] for steps in (0, 5))
    assert near.value < far.value < 1
    assert not far.holds  # the draft is never right after an error: too slow for the goal


def test_runs_with_a_busy_network_do_not_count(store, header, tmp_path):
    other = Store(tmp_path / "sweep.jsonl")
    other.begin(header)
    for run in store.load().runs:
        share = 0.06 if run.repeat else 0.01
        other.append(Run(run.repeat, run.cell, run.sample, {**run.facts, "network_share": share}))
    summary = Summary.of(other.load())
    assert all(list(times) == [0] for times in summary.times_s.values())
    assert {run.repeat for run in summary.sweep.runs} == {0}  # costs are fitted without them


def without(sweep: Sweep, *left_out: tuple[int, Cell]) -> Summary:
    return Summary.of(replace(sweep, runs=tuple(r for r in sweep.runs if (r.repeat, r.cell) not in left_out)))


def test_a_bar_without_its_cell_fails(store, predicted):
    full, sync = Cell(Mode.FULL, CHOSEN, 0), Cell(Mode.SYNC, 2, 2)
    summary = without(store.load(), *((repeat, cell) for repeat in range(2) for cell in (full, sync)))
    assert summary.full(0) is None  # no set draft length replaces the session's choice
    known = {cell: one for cell, one in predicted.items() if cell in summary.times_s}
    held = {bar.name: bar for bar in find_bars(summary, known, seed=0)}
    for name in (
        "full over target-only at 0 passes",
        "full over the best sync at 0 passes",
        "full over the best sync at 5 passes",
        "full against the simulation, largest error",
        "sync against the closed form, largest error",
    ):
        assert not held[name].holds
        assert "n/a" in str(held[name]) and str(held[name]).endswith("short")
    assert held["full over target-only at 5 passes"].value < 1


def test_cells_without_a_repeat_in_common_are_not_compared(store):
    full, target_only = Cell(Mode.FULL, CHOSEN, 0), Cell(Mode.TARGET_ONLY, CHOSEN, 0)
    summary = without(store.load(), (0, full), (1, target_only))
    assert summary.ratio(full, target_only, seed=0) is None
    bar = next(bar for bar in find_bars(summary, {}, seed=0) if "target-only at 0" in bar.name)
    assert not bar.holds and "no repeat has both" in bar.shown
    print_tables(summary, {}, Console(), seed=0)
    assert [isnan(value) for value in draw(summary, {}, seed=0).curves[-1].values] == [True, False, False]


def test_bars_of_cells_that_were_not_requested_are_left_out(store, predicted):
    sweep = store.load()
    header = {**sweep.header, "request": {**sweep.header["request"], "modes": ["target-only", "full"]}}
    summary = Summary.of(replace(sweep, header=header))
    names = [bar.name for bar in find_bars(summary, predicted, seed=0)]
    over_target_only = [f"full over target-only at {s} passes" for s in ("0", "1.25", "5")]
    assert names == [*over_target_only, FULL_SIMULATED, "full against the closed form, largest error"]


def test_one_process_on_two_cores_is_compared_without_a_bar(store):
    sweep = store.load()
    request = {
        **sweep.header["request"],
        "modes": [*MODES, Mode.ONE_PROCESS],
        "max_cores": 2,
        "hints": ["realigned"],
    }
    facts = next(run.facts for run in sweep.runs if run.cell == Cell(Mode.SYNC, CHOSEN, 0))
    fast = {**facts, "time_per_token_s": facts["time_per_token_s"] / 10}
    runs = [
        Run(repeat, Cell(Mode.ONE_PROCESS, gamma, place, cores), "one", facts if cores == 1 else fast)
        for repeat, gamma, place, cores in product(range(2), (2, CHOSEN), range(len(STEPS)), (1, 2))
    ]
    summary = Summary.of(Sweep({**sweep.header, "request": request}, (*sweep.runs, *runs)))
    assert not any("two cores" in bar.name for bar in find_bars(summary, {}, seed=0))
    one_core = next(bar for bar in find_bars(summary, {}, seed=0) if "one core at 0" in bar.name)
    assert one_core.holds
    notes = find_notes(summary, seed=0)
    assert notes[0].startswith("full over one process on two cores, 0 passes (for information): ")
    assert str(draw(summary, {}, seed=0).curves[-1].arm) == "one-process, 2 cores"
    assert "n/a" in find_notes(Summary.of(Sweep(summary.sweep.header, sweep.runs)), seed=0)[0]


def test_unmodelled_networks_have_no_predictions(store, tmp_path):
    sweep = store.load()
    header = {**sweep.header, "conditions": {"round_trip_s": 0.0, "loss": 0.01}}
    chosen = tuple(run for run in sweep.runs if run.cell.gamma == CHOSEN)
    summary = Summary.of(Sweep(header, chosen))
    assert not any("against" in bar.name for bar in find_bars(summary, {}, seed=0))
    drawing = draw(summary, {}, seed=0)
    assert not (drawing.predictions or drawing.best_gammas)
    assert len(write_figures(drawing, tmp_path)) == 2 * 3  # modes and parts, each in three formats


def test_times_are_relative_to_target_only_at_the_same_round_trip(store):
    """A slow machine during one round trip changes no ratio."""
    sweep = store.load()
    slow = [
        replace(run, facts={**run.facts, "time_per_token_s": run.time_per_token_s * 3})
        if run.cell.round_trip == 1
        else run
        for run in sweep.runs
    ]
    usual, slowed = (draw(Summary.of(s), {}, seed=0) for s in (sweep, replace(sweep, runs=tuple(slow))))
    for before, after in zip(usual.curves, slowed.curves, strict=True):
        assert after.values == pytest.approx(before.values)
        assert after.low == pytest.approx(before.low)


def test_a_sweep_without_target_only_is_not_drawn(store):
    sweep = store.load()
    drafting = tuple(run for run in sweep.runs if run.cell.mode.drafts)
    with pytest.raises(InvalidRequest, match="no target-only runs"):
        draw(Summary.of(replace(sweep, runs=drafting)), {}, seed=0)


def shown(path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ("show", "--sweep", str(path), *arguments))
    return result.exit_code, result.output


def test_a_sweep_is_shown(store, path, tmp_path):
    figures = tmp_path / "figures.json"
    _, output = shown(path, "--check", "--json", str(figures))
    assert "Texts equal to the target's: 42 of 42" in output
    assert "Measured at commit a1b2c3; none, 1 cores." in output
    assert "full over target-only at 0 passes: " in output
    assert "95 % intervals, n = 2; best set draft length" in output
    content = json.loads(figures.read_text())
    assert content["texts"] == {"runs": 42, "different": []}
    assert content["origins"] == [{"commit": "a1b2c3", "machine": "none, 1 cores"}]
    cells = {(one["cell"], one["round_trip_steps"]): one for one in content["cells"]}
    assert cells["sync, gamma chosen", 0.0]["closed_form_s"] is None
    assert cells["sync, gamma 2", 0.0]["closed_form_s"] > 0


def changed(path, tmp_path, old: str, new: str, count: int = -1):
    other = tmp_path / "other.jsonl"
    other.write_text(path.read_text().replace(old, new, count))
    return other


def test_a_different_text_fails_the_sweep(store, path, tmp_path):
    different = changed(path, tmp_path, '"is_same": true', '"is_same": false', 1)
    status, output = shown(changed(different, tmp_path, *STALLED))  # without predictions, which take long
    assert status == 1
    assert "Texts equal to the target's: 41 of 42" in output
    assert "DIFFERENT: target-only, round trip 1, one, repeat 1" in output


@pytest.mark.nightly
def test_a_check_without_bars_fails(store, path, tmp_path):
    request = '"modes": ["target-only", "sync", "pipelined", "full"]'
    status, output = shown(changed(path, tmp_path, request, '"modes": ["target-only"]'), "--check")
    assert status == 1
    assert "--check finds no bar for this sweep" in output


def test_show_names_the_conditions_without_predictions(store, path, tmp_path):
    status, output = shown(changed(path, tmp_path, *STALLED))
    assert status == 0
    assert "No predictions: neither simulation nor closed forms model stalls." in output
    assert "full, simulated" not in output


def test_full_is_the_sessions_choice(store):
    summary = Summary.of(store.load())
    assert summary.full(1) == Cell(Mode.FULL, CHOSEN, 1)
    assert summary.best(Arm(Mode.SYNC), 1, fixed=True) == Cell(Mode.SYNC, 2, 1)
    assert summary.best(Arm(Mode.ONE_PROCESS), 0) is None
    assert json.dumps(summary.sweep.header)


@pytest.mark.nightly
def test_every_predicted_cell_is_a_dot(store, predicted):
    drawing = draw(Summary.of(store.load()), predicted, seed=0)
    simulated = {cell for dots in drawing.simulated for cell in dots.cells}
    closed_form = {cell for dots in drawing.closed_form for cell in dots.cells}
    assert len(simulated) == len(predicted) == 21
    without = {f"{mode}, gamma chosen, round trip {s:g}" for mode in ("sync", "pipelined") for s in STEPS}
    assert simulated - closed_form == without  # drafts that wait and choose their length
    for dots in drawing.simulated:
        assert dots.predicted == pytest.approx(dots.measured, rel=0.05)
    assert [best.arm.mode for best in drawing.best_predicted] == [Mode.SYNC, Mode.PIPELINED, Mode.FULL]


@pytest.mark.nightly
def test_a_sweep_is_plotted(store, path, tmp_path):
    result = CliRunner().invoke(app, ("plot", "--sweep", str(path), "--folder", str(tmp_path)))
    assert result.exit_code == 0
    assert len(list(tmp_path.iterdir())) == 5 * 3 + 2  # with predictions
    assert "n = 2" in (tmp_path / "captions.md").read_text()
