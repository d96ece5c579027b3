"""A sweep's file, what is still to be measured, and what one run notes; servers and network are made up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.common.audio.samples import Sample
from experiments.latency.cells import CHOSEN, Cell
from experiments.latency.networks.conditions import Conditions
from experiments.latency.report.report import report
from experiments.latency.sweep.cell_run import Measuring
from experiments.latency.sweep.grid import left_of
from experiments.latency.sweep.marking import Marks
from experiments.latency.sweep.models import Models
from experiments.latency.sweep.origin import Origin, describe_origins
from experiments.latency.sweep.request import Asked, Setting
from experiments.latency.sweep.store import Run, Store
from experiments.latency.terms import MAX_TRIES
from specwhisper.errors import InvalidRequest
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

ASKED = Asked([Mode.TARGET_ONLY, Mode.FULL], [CHOSEN], [0.0, 5.0], False, 2, 1, 0)
SAMPLES = [Sample("one", b"", {}), Sample("two", b"", {})]
TEXT = (1, 2, 3)


def trace(*tokens: int, log_prob: float = -0.5) -> str:
    return json.dumps({"target": "demo", "decodings": [{"tokens": tokens, "log_probs": [log_prob]}]})


HEADER = {
    "models": {"target": "a", "draft": "b"},
    "conditions": {"round_trip_s": 0.0},
    "network": "none",
    "asked": ASKED.facts() | {"samples": ["one", "two"]},
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


def test_a_sweep_goes_on_where_it_was(store):
    store.append(a_run())
    assert store.begin(HEADER).runs == store.load().runs == (a_run(),)
    left = left_of(store.load(), ASKED, SAMPLES)
    assert len(left) == 2 * 2 * 2 * 2 - 1
    assert (0, a_run().cell, SAMPLES[0]) not in left


def test_what_the_network_spoilt_is_measured_again(store):
    store.append(a_run(0.06))
    assert len(left_of(store.load(), ASKED, SAMPLES)) == 16
    store.append(a_run(0.01))
    assert len(left_of(store.load(), ASKED, SAMPLES)) == 15
    assert len(store.load().runs) == 2 and len(store.load().counted.runs) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": {"target": "another"}}, "a sweep of other models"),
        ({"conditions": {"round_trip_s": 0.0, "loss": 0.1}}, "a sweep of other conditions"),
        ({"trace": trace(1, 3)}, "a sweep of another trace"),
        ({"texts": {"one": [1, 2]}}, "the target alone wrote another text"),
    ],
)
def test_a_sweep_of_something_else_is_refused(store, path, change, message):
    before = path.read_bytes()
    with pytest.raises(InvalidRequest, match=message):
        store.begin({**HEADER, **change})
    assert path.read_bytes() == before


def test_the_last_digits_of_a_trace_may_differ(store):
    assert not store.begin({**HEADER, "trace": trace(1, 2, log_prob=-0.50001)}).runs


def test_a_line_that_was_being_written_is_dropped(store, path):
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
        ('{"format": 2}\n7\n', "holds no sweep"),
        ("[]\n", "holds no sweep"),
        ("some text\n", "holds no sweep"),
        ("some text", "holds no sweep"),
    ],
)
def test_what_is_no_sweep_is_refused_and_left_alone(path, content, message):
    path.write_text(content)
    for use in (lambda: Store(path).load(), lambda: Store(path).begin(HEADER)):
        with pytest.raises(InvalidRequest, match=message):
            use()
    assert path.read_text() == content


def test_a_file_that_is_not_there_or_cannot_be_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="holds no sweep"):
        Store(tmp_path / "nothing.jsonl").load()
    with pytest.raises(InvalidRequest, match="cannot be written"):
        Store(tmp_path / "nowhere" / "sweep.jsonl").begin(HEADER)


def test_a_sweep_of_nothing_that_counts_is_not_shown(store, path):
    store.append(a_run(0.06))
    with pytest.raises(InvalidRequest, match="no run that counts"):
        report(path, Console(), seed=0, json=None, check=True)


def test_different_texts_are_found_in_all_runs(store):
    store.append(a_run())
    store.append(a_run(0.06, is_same=False))
    (different,) = store.load().different
    assert str(different) == "full, gamma chosen, round trip 2, one, repeat 1"


def test_origins_are_told_together():
    origins = [Origin("b", "m"), Origin("a", "m"), Origin("b", "m")]
    assert describe_origins(origins) == "commit a and b; m"
    assert Origin.of(a_run().facts).facts() == {"commit": "a1b2c3", "machine": "a machine"}


class FakeNetwork:
    """Takes a given share of a core, run by run."""

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
    """Writes the given texts, each within a second."""

    def __init__(self, *texts: tuple[int, ...]) -> None:
        self._texts = iter(texts)

    def warm_up(self):
        pass

    def transcribe(self, cell, sample):
        statistics = SpeculationStatistics(num_committed=3)
        return Marks(next(self._texts), 1.0, 0.1, 0.9, 1, statistics)


def measured(network: FakeNetwork, lab: FakeLab) -> dict:
    measuring = Measuring(lab, network, Conditions(jitter_s=0.01), [0.0, 0.25])
    return measuring.run(Cell(Mode.FULL, CHOSEN, 1), SAMPLES[0], TEXT, seed=7)


def test_a_run_notes_what_it_took():
    network = FakeNetwork(0.04)
    facts = measured(network, FakeLab(TEXT))
    assert facts["time_per_token_s"] == pytest.approx(0.4)
    assert facts["network_share"] == pytest.approx(0.04)
    assert facts["is_same"] and facts["num_discarded"] == 0
    assert network.applied == [(0.25, 7)]


def test_a_run_in_which_the_network_worked_too_hard_is_tried_again(store):
    assert measured(FakeNetwork(0.06, 0.02), FakeLab(TEXT, TEXT))["num_discarded"] == 1
    facts = measured(FakeNetwork(*[0.06] * MAX_TRIES), FakeLab(*[TEXT] * MAX_TRIES))
    assert facts["num_discarded"] == MAX_TRIES - 1
    store.append(replace(a_run(), facts={**a_run().facts, **facts}))
    assert not store.load().done  # it is kept, and is still to be measured
    assert len(left_of(store.load(), ASKED, SAMPLES)) == 16


def test_a_text_is_compared_before_its_run_is_discarded():
    facts = measured(FakeNetwork(0.06, 0.02), FakeLab((1, 2), TEXT))
    assert not facts["is_same"]


def test_recordings_of_one_name_are_refused():
    models = Models("demo", "demo-target", "demo-draft-tiny")
    with pytest.raises(InvalidRequest, match="a name twice"):
        Setting(models, [SAMPLES[0], SAMPLES[0]], "proxy", Conditions())
