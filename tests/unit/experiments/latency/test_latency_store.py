"""A sweep's file, the runs still to measure, and one run with a fake network and lab."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.common.audio.samples import Sample
from experiments.latency.cells import CHOSEN, Cell
from experiments.latency.networks.conditions import Conditions
from experiments.latency.report.report import report
from experiments.latency.sweep.cell_runner import CellRunner
from experiments.latency.sweep.grid import left_of
from experiments.latency.sweep.models import Models
from experiments.latency.sweep.origin import Origin, describe_origins
from experiments.latency.sweep.request import SweepRequest, SweepSetup
from experiments.latency.sweep.store import Run, Store
from experiments.latency.sweep.timed_client import TimedTokens
from experiments.latency.terms import MAX_TRIES
from specwhisper.errors import InvalidRequest
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

REQUEST = SweepRequest([Mode.TARGET_ONLY, Mode.FULL], [CHOSEN], [0.0, 5.0], False, 2, 1, 0)
SAMPLES = [Sample("one", b"", {}), Sample("two", b"", {})]
TEXT = (1, 2, 3)


def trace(*tokens: int, log_prob: float = -0.5) -> str:
    return json.dumps({"target": "demo", "decodings": [{"tokens": tokens, "log_probs": [log_prob]}]})


HEADER = {
    "models": {"target": "a", "draft": "b"},
    "conditions": {"round_trip_s": 0.0},
    "network": "none",
    "request": REQUEST.facts() | {"samples": ["one", "two"]},
    "step_s": 0.05,
    "round_trips_s": [0.0, 0.25],
    "trace": trace(1, 2),
    "texts": {"one": [1, 2, 3]},
}


def a_run(share: float = 0.01, *, repeat: int = 0, is_same: bool = True) -> Run:
    facts = {"network_share": share, "is_same": is_same, "time_per_token_s": 0.05, "num_tokens": 3}
    origin = {"commit": "a1b2c3", "machine": "a machine"}
    return Run(repeat, Cell(Mode.FULL, CHOSEN, 1), "one", facts | origin)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sweep.jsonl"


@pytest.fixture
def store(path):
    store = Store(path)
    store.begin(HEADER)
    return store


def test_an_interrupted_sweep_continues(store):
    store.append(a_run())
    assert store.begin(HEADER).runs == store.load().runs == (a_run(),)
    left = left_of(store.load(), REQUEST, SAMPLES)
    assert len(left) == 2 * 2 * 2 * 2 - 1
    assert (0, a_run().cell, SAMPLES[0]) not in left


def test_runs_with_a_busy_network_are_measured_again(store):
    store.append(a_run(0.06))
    assert len(left_of(store.load(), REQUEST, SAMPLES)) == 16
    store.append(a_run(0.01))
    assert len(left_of(store.load(), REQUEST, SAMPLES)) == 15
    assert len(store.load().runs) == 2 and len(store.load().counted.runs) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": {"target": "another"}}, "a sweep with other models"),
        ({"conditions": {"round_trip_s": 0.0, "loss": 0.1}}, "a sweep with other conditions"),
        ({"trace": trace(1, 3)}, "a sweep of another trace"),
        ({"texts": {"one": [1, 2]}}, "target-only wrote another text"),
    ],
)
def test_a_sweep_with_another_request_is_refused(store, path, change, message):
    before = path.read_bytes()
    with pytest.raises(InvalidRequest, match=message):
        store.begin({**HEADER, **change})
    assert path.read_bytes() == before


def test_scores_of_a_trace_may_differ(store):
    assert not store.begin({**HEADER, "trace": trace(1, 2, log_prob=-0.50001)}).runs


def test_an_incomplete_last_line_is_dropped(store, path):
    store.append(a_run())
    whole = path.read_bytes()
    store.append(a_run(repeat=1))
    path.write_bytes(path.read_bytes()[:-20])
    assert store.load().runs == (a_run(),)
    assert path.read_bytes() != whole  # reading changes nothing
    store.begin(HEADER)
    assert path.read_bytes() == whole
    store.append(a_run(repeat=1))
    assert [run.repeat for run in store.load().runs] == [0, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": 1}\n', "of format 1"),
        ('{"format": 3}\n7\n', "holds no readable sweep"),
        ("[]\n", "holds no readable sweep"),
        ("some text\n", "holds no readable sweep"),
        ("some text", "holds no readable sweep"),
    ],
)
def test_other_files_are_refused_and_unchanged(path, content, message):
    path.write_text(content)
    for use in (lambda: Store(path).load(), lambda: Store(path).begin(HEADER)):
        with pytest.raises(InvalidRequest, match=message):
            use()
    assert path.read_text() == content


def test_missing_and_unwritable_files_are_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="holds no readable sweep"):
        Store(tmp_path / "nothing.jsonl").load()
    with pytest.raises(InvalidRequest, match="cannot be written"):
        Store(tmp_path / "nowhere" / "sweep.jsonl").begin(HEADER)


def test_a_sweep_without_a_run_that_counts_is_not_shown(store, path):
    store.append(a_run(0.06))
    with pytest.raises(InvalidRequest, match="no run that counts"):
        report(path, Console(), seed=0, json=None, check=True)


def test_runs_that_do_not_count_are_compared_too(store):
    store.append(a_run())
    store.append(a_run(0.06, is_same=False))
    (different,) = store.load().different
    assert str(different) == "full, gamma chosen, round trip 2, one, repeat 1"


def test_origins_are_described_together():
    origins = [Origin("b", "m"), Origin("a", "m"), Origin("b", "m")]
    assert describe_origins(origins) == "commit a and b; m"
    assert Origin.of(a_run().facts).facts() == {"commit": "a1b2c3", "machine": "a machine"}


class FakeNetwork:
    """Uses a given share of a core in each run."""

    def __init__(self, *shares: float) -> None:
        self._shares = iter(shares)
        self._cpu_s = 0.0
        self._is_over = False
        self.applied: list[tuple[float, int]] = []

    def apply(self, conditions, *, seed=0):
        self.applied.append((conditions.round_trip_s, seed))

    def cpu_s(self):
        self._cpu_s += next(self._shares) if self._is_over else 0.0
        self._is_over = not self._is_over
        return self._cpu_s


class FakeLab:
    """Returns the given texts, each within a second."""

    def __init__(self, *texts: tuple[int, ...]) -> None:
        self._texts = iter(texts)

    def warm_up(self):
        pass

    def transcribe(self, cell, sample):
        statistics = SpeculationStatistics(num_committed=3)
        return TimedTokens(next(self._texts), 1.0, 0.1, 0.9, 1, statistics)


def measured(network: FakeNetwork, lab: FakeLab) -> dict:
    runner = CellRunner(lab, network, Conditions(jitter_s=0.01), [0.0, 0.25])
    return runner.run(Cell(Mode.FULL, CHOSEN, 1), SAMPLES[0], TEXT, seed=7)


def test_a_run_records_time_network_share_and_text():
    network = FakeNetwork(0.04)
    facts = measured(network, FakeLab(TEXT))
    assert facts["time_per_token_s"] == pytest.approx(0.4)
    assert facts["network_share"] == pytest.approx(0.04)
    assert facts["is_same"] and facts["num_discarded"] == 0
    assert network.applied == [(0.25, 7)]


def test_a_run_with_a_busy_network_is_repeated(store):
    assert measured(FakeNetwork(0.06, 0.02), FakeLab(TEXT, TEXT))["num_discarded"] == 1
    facts = measured(FakeNetwork(*[0.06] * MAX_TRIES), FakeLab(*[TEXT] * MAX_TRIES))
    assert facts["num_discarded"] == MAX_TRIES - 1
    store.append(replace(a_run(), facts={**a_run().facts, **facts}))
    assert not store.load().done  # it is stored, but must be measured again
    assert len(left_of(store.load(), REQUEST, SAMPLES)) == 16


def test_a_text_is_compared_before_its_run_is_discarded():
    facts = measured(FakeNetwork(0.06, 0.02), FakeLab((1, 2), TEXT))
    assert not facts["is_same"]


def test_recordings_with_the_same_name_are_refused():
    models = Models("demo", "demo-target", "demo-draft-tiny")
    with pytest.raises(InvalidRequest, match="a name twice"):
        SweepSetup(models, [SAMPLES[0], SAMPLES[0]], "proxy", Conditions())
