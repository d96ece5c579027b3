"""The sweep's program measures with real processes, continues, and draws figures."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.processes import run


def run_latency(*arguments: object) -> str:
    """Run one of its commands; return its output."""
    status, out, err = run("experiments.latency", *map(str, arguments))
    assert status == 0, err + out
    return out


def runs_in(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def key(run: dict) -> tuple:
    return tuple(run[name] for name in ("repeat", "mode", "gamma", "round_trip", "hints", "cores", "sample"))


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_sweep_is_measured_once_and_drawn(tmp_path):
    sweep = tmp_path / "sweep.jsonl"
    command = ("sweep", "--quick", "--network", "proxy", "--out", sweep)
    counted = re.search(r"Texts equal to the target's: (\d+) of (\d+)", run_latency(*command))
    assert counted is not None and counted[1] == counted[2]
    measured = runs_in(sweep)
    assert len({key(one) for one in measured}) == len(measured) == 2 * (1 + 2 + 2 + 3)
    assert all(one["is_same"] and one["commit"] and one["measured"].endswith("+00:00") for one in measured)
    cores = json.loads(sweep.read_text().splitlines()[0])["cores"]
    assert cores["one process"] == sorted({*cores["target server"], *cores["draft server"]})

    output = run_latency(*command)  # measures only runs with a busy network again, if any
    discarded = {key(one) for one in measured if one["network_share"] > 0.05}
    assert f"{len(measured) - len(discarded)} runs exist already; {len(discarded)} are left." in output
    assert runs_in(sweep)[: len(measured)] == measured
    assert {key(one) for one in runs_in(sweep)[len(measured) :]} == discarded

    run_latency("plot", "--sweep", sweep, "--folder", tmp_path / "plots")
    drawn = {path.suffix: path for path in (tmp_path / "plots").iterdir()}
    assert len(list((tmp_path / "plots").glob("*.png"))) == 5
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "plots").iterdir()}
    assert {name: size for name, size in sizes.items() if size <= 5000 and name != "captions.md"} == {}
    assert "Plotly.newPlot" in drawn[".html"].read_text()
