"""Cells, a grid's file, what it shows, and the tables of the page."""

import json
from typing import Any

import pytest

from experiments.capacity.laws import SHARED, laws
from experiments.common.audio.conditions import Condition
from experiments.common.servers.timed_client import TimedTokens
from experiments.latency.cells import (
    TARGET_ONLY,
    Arm,
    Cell,
    Grid,
    Run,
)
from experiments.latency.page import FOLDER
from experiments.latency.summary import WHOLE, Summary
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

CLEAN, FULL = Condition.CLEAN, Arm(Mode.FULL)
HEADER = {
    "pair": {"target": "demo-target", "draft": "b, int8"},
    "samples": {CLEAN: ["one", "two"]},
    "texts": {"one": [1, 2, 3], "two": [4]},
}


def a_run(
    arm: Arm, decoding_s: float, *, rtt_ms: float = 0.0, sample: str = "one", repeat: int = 0, **facts: Any
) -> Run:
    facts = {
        "network_share": 0.01,
        "is_same": True,
        "decoding_s": decoding_s,
        "wall_s": 1 + decoding_s,
    } | facts
    return Run(repeat, Cell(CLEAN, rtt_ms, arm), sample, facts)


def summary_of(*runs: Run) -> Summary:
    return Summary(Grid(HEADER, runs))


class TestSummary:
    def test_ratios_are_of_complete_repeats_of_all_recordings(self):
        runs = [
            a_run(arm, slow * share, sample=sample, repeat=repeat)
            for repeat, slow in enumerate((1.0, 2.0))
            for sample in ("one", "two")
            for arm, share in ((TARGET_ONLY, 1), (FULL, 0.25))
        ]
        summary = summary_of(*runs, a_run(FULL, 9.0, repeat=2))  # without the other recording
        ratio = summary.over(Cell(CLEAN, 0.0, FULL), Cell(CLEAN, 0.0, TARGET_ONLY))
        assert ratio is not None and (ratio.value, ratio.num_rounds) == (pytest.approx(0.25), 2)
        assert summary.times_s(Cell(CLEAN, 0.0, FULL), WHOLE) == {0: 2.5, 1: 3.0}

    def test_waits_are_the_round_trips_by_which_an_utterance_is_longer(self):
        near = [a_run(FULL, 0.1, sample=sample) for sample in ("one", "two")]
        far = [a_run(FULL, 0.1, rtt_ms=100.0, sample=sample, wall_s=1.35) for sample in ("one", "two")]
        summary = summary_of(*near, *far)
        assert summary.waits(Cell(CLEAN, 100.0, FULL)) == pytest.approx(2.5)
        assert summary.waits(Cell(CLEAN, 0.0, FULL)) is None

    def test_decoding_begins_with_the_first_forward_pass_and_leaves_out_later_encodings(self):
        counts = SpeculationStatistics(
            num_forwards=4, forward_ns=400_000_000, encode_ns=600_000_000, num_windows=2
        )
        assert TimedTokens((), 3.0, 1.0, 2.5, counts).decoding_s == pytest.approx(1.5 + 0.1 - 0.3)


def test_the_law_counts_passes_without_candidates():
    gain = {"arm": "full", "num_sessions": 1, "width": 9.0, "batch_sizes": [1.0, 1.0]}
    run = {
        "load": {"arm": "full", "num_sessions": 1},
        "num_passes": 10,
        "num_verifying": 5,
        "num_tokens": 60,
    }
    crowd = {
        "where": SHARED,
        "num_sessions": 8,
        "pass_ms": 10.0,
        "num_tokens": 5.0,
        "tokens_per_s": 2000.0,
    }
    facts = {
        "capacity": {
            "gains": [{**gain, "decoding": {"value": 3.0}}],
            "outcomes": [run],
            "pass_s": {"1 x 1": 0.01, "1 x 10": 0.02},
        },
        "crowd": {"runs": [crowd]},
    }
    (real,), (scripted,) = laws(facts).values()
    assert (real.predicted, real.share) == (pytest.approx(6 * 0.01 / 0.015), pytest.approx(3 / 4))
    assert (scripted.predicted, scripted.gain) == (5.0, pytest.approx(2.5))


def test_json_files_are_of_clean_commits():
    for path in FOLDER.glob("latency-*.json"):
        assert "dirty" not in json.loads(path.read_text())["versions"]["specwhisper"], path
