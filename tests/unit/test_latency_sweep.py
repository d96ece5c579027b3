"""From a sweep on disk to fits, predictions, bars and plots; the sweep here is a simulated one."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from experiments.common.replay.trace import Trace
from experiments.latency.cells import CHOSEN, Cell, cells_of
from experiments.latency.figures import write_figures
from experiments.latency.fit import acceptance_of, fit_costs, survival_of
from experiments.latency.page import write_page
from experiments.latency.predict import predict
from experiments.latency.series import draw
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session
from experiments.latency.store import Run, Store
from experiments.latency.summary import Summary, find_bars
from specwhisper.errors import InvalidRequest
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode
from specwhisper.whisper.checkpoint import load_checkpoint
from tests.unit.test_latency_simulation import decoding

COSTS = Costs(target=Cost(0.048, 0.002), draft=Cost(0.01), message_s=0.001)
STEPS = (0.0, 1.25, 5.0)
MODES = (Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL)
DECODINGS = tuple(decoding(*[hash((i, seed)) % 6 != 0 for i in range(150)]) for seed in range(2))


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
        "asked": {"samples": ["one"]},
        "step_s": 0.05,
        "round_trips_s": [0.05 * steps for steps in STEPS],
        "trace": path.read_text(),
        "machine": {"cpu": "none", "cores": 1},
        "versions": {"torch": "none"},
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory, header, vocabulary):
    """Every cell twice, the second time a hundredth slower."""
    store = Store(tmp_path_factory.mktemp("sweep") / "sweep.jsonl")
    store.begin(header)
    for cell in cells_of(MODES, [2, CHOSEN], len(STEPS), max_cores=1):
        length = DraftLength(cell.mode, cell.gamma or 5, is_adaptive=cell.gamma == CHOSEN)
        told = simulate_session(
            DECODINGS, vocabulary, COSTS, length, round_trip_s=0.05 * STEPS[cell.round_trip]
        )
        for repeat in range(2):
            facts = {
                "time_per_token_s": told.time_per_token_s * (1 + 0.01 * repeat),
                "num_tokens": told.statistics.num_committed,
                "network_share": 0.01,
                "statistics": asdict(told.statistics),
            }
            store.append(Run(repeat, cell, "one", facts))
    return store


def test_a_sweep_goes_on_where_it_was(store, header):
    before = store.load()
    assert store.begin(header).runs == before.runs
    assert len(before.runs) == 2 * (3 + 3 * 2 * 3)
    with pytest.raises(InvalidRequest, match="a sweep of other models"):
        store.begin({**header, "models": {"target": "another"}})


def test_what_is_no_sweep_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="holds no sweep"):
        Store(tmp_path / "nothing.jsonl").load()
    (tmp_path / "broken.jsonl").write_text('{"format": 0}\n')
    with pytest.raises(InvalidRequest, match="another format"):
        Store(tmp_path / "broken.jsonl").load()


def test_costs_are_found_again(store):
    found = fit_costs(store.load())
    assert found.target.pass_s == pytest.approx(COSTS.target.pass_s, rel=0.02)
    assert found.target.token_s == pytest.approx(COSTS.target.token_s, rel=0.15)
    assert found.draft.pass_s == pytest.approx(COSTS.draft.pass_s, rel=0.05)
    assert found.message_s == pytest.approx(COSTS.message_s, rel=0.5)


@pytest.mark.parametrize("modes", [[Mode.TARGET_ONLY], [Mode.TARGET_ONLY, Mode.FULL], [Mode.PIPELINED]])
def test_a_sweep_of_some_modes_can_be_fitted_too(store, modes):
    sweep = store.load()
    found = fit_costs(sweep, [run for run in sweep.runs if run.cell.mode in modes])
    assert found.target.of(1, 1) == pytest.approx(COSTS.target.of(1, 1), rel=0.2)
    assert found.message_s == 0  # what is not known costs nothing
    if any(mode.drafts for mode in modes):
        assert found.draft.pass_s == pytest.approx(COSTS.draft.pass_s, rel=0.5)


def test_survival_is_counted_from_every_position():
    survival = survival_of([decoding(True, True, False, True)])
    assert survival[:4] == [1.0, 3 / 4, 1 / 4, 0.0]
    assert acceptance_of([decoding(True, True, False, True)]) == 3 / 4


def test_predictions_meet_what_was_simulated(store):
    summary = Summary.of(store.load())
    predicted = predict(summary.sweep, summary.times_s)
    for cell, prediction in predicted.items():
        assert prediction.simulated_s == pytest.approx(summary.median_s(cell), rel=0.05)
    bars = find_bars(summary, predicted, seed=0)
    held = {bar.name: bar.holds for bar in bars}
    assert held["full over target-only at 0 steps"]
    assert held["full over target-only at 5 steps"]
    assert held["full against the simulation, largest error"]


def test_runs_in_which_the_network_worked_too_hard_do_not_count(store, header, tmp_path):
    other = Store(tmp_path / "sweep.jsonl")
    other.begin(header)
    for run in store.load().runs:
        share = 0.06 if run.repeat else 0.01
        other.append(Run(run.repeat, run.cell, run.sample, {**run.facts, "network_share": share}))
    assert all(list(times) == [0] for times in Summary.of(other.load()).times_s.values())


def test_plots_and_page_are_written(store, tmp_path):
    summary = Summary.of(store.load())
    drawing = draw(summary, predict(summary.sweep, summary.times_s))
    assert [curve.mode for curve in drawing.measured] == [m for m in Mode if m in MODES]
    assert all(len(curve.values) == len(STEPS) for curve in drawing.measured)
    assert [grid.gammas for grid in drawing.grids] == [[2], [2], [2]]
    for path in write_figures(drawing, tmp_path):
        assert path.read_bytes().startswith(b"\x89PNG")
    write_page(drawing, ["a <fact>"], ["a bar"], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "a &lt;fact&gt;" in page and "plotly" in page
    assert "https://" not in page.partition("<script")[0]  # it needs nothing else


def test_the_full_mode_is_what_a_session_chooses(store):
    summary = Summary.of(store.load())
    assert summary.full(1) == Cell(Mode.FULL, CHOSEN, 1)
    assert summary.best(Mode.SYNC, 1, fixed=True) == Cell(Mode.SYNC, 2, 1)
    assert summary.best(Mode.ONE_PROCESS, 0) is None
    assert json.dumps(summary.sweep.header)
