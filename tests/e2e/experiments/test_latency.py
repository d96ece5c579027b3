"""Commands of ``experiments.latency``."""

import json
import re

import pytest

from experiments.common.audio.samples import BUNDLED
from experiments.latency.cells import Store
from tests.e2e.processes import run

SAMPLE = str(BUNDLED / "01_phone_call.flac")
PAIR = ("--target", "demo-target", "--draft", "demo-draft-tiny", "--audio", SAMPLE)
pytestmark = pytest.mark.nightly


def run_latency(*arguments: object) -> str:
    """Run one of its commands; return its output."""
    status, out, err = run("experiments.latency", *map(str, arguments))
    assert status == 0, err + out
    return out


@pytest.mark.timeout(400)
def test_a_grid_is_measured_and_continued(tmp_path):
    grid, figures = tmp_path / "a.grid", tmp_path / "figures.json"
    command = ("sweep", *PAIR, "--quick", "--repeats", 1, "--out", grid)
    run_latency(*command, "--json", figures)
    runs = Store(grid).load().runs
    assert len(runs) == 2 * 4 and all(run.facts["is_same"] for run in runs)
    discarded = sum(not run.counts for run in runs)
    again = run_latency(*command)
    assert f"{len(runs) - discarded} runs exist already; {discarded} are left." in again
    found = json.loads(figures.read_text())
    assert found["num_different"] == 0
    full = [cell for cell in found["cells"] if cell["mode"] == "full"]
    assert all(cell["simulated"] > 0 for cell in full)
    assert re.search(r"full +│ +\d", again)


def test_large_v3_on_a_gpu_is_simulated(tmp_path):
    figures = tmp_path / "figures.json"
    run_latency("expect", *PAIR, "--quick", "--json", figures)
    (table,) = json.loads(figures.read_text())["expected"]
    near, far = table["rows"]
    assert max(near["full"], far["full"]) < 1.1
    assert far["sync"] > 2 * far["full"]
    assert near["both on the GPU"] < 1
