"""Commands of ``experiments.latency`` run without pinned cores."""

from __future__ import annotations

import json

import pytest

from experiments.common.audio.samples import BUNDLED
from tests.e2e.processes import run

SAMPLE = str(BUNDLED / "01_phone_call.flac")


def run_latency(*arguments: str, figures) -> dict:
    """Run a command and return its figures."""
    status, out, err = run("experiments.latency", *arguments, "--json", str(figures))
    assert status == 0, err + out
    return json.loads(figures.read_text())


@pytest.mark.nightly
def test_the_proxy_adds_the_requested_delay(tmp_path):
    found = run_latency(
        "calibrate", "--network", "proxy", "--rtt-ms", "0,20", "--messages", "3", figures=tmp_path / "json"
    )
    near, far = (min(one["echo_ms"]) for one in found["calibrated"])
    assert near < 20 <= far


@pytest.mark.nightly
def test_one_session_is_simulated_by_round_trip(tmp_path):
    found = run_latency("expect", "--rtt", "0,5", "--audio", SAMPLE, figures=tmp_path / "json")
    near, far = found["expected"][0]["rows"]
    assert near["chosen"]["full"] < far["chosen"]["full"] < 1
    assert far["chosen"]["sync"] > 2 * far["chosen"]["full"]
    # The closed form knows how often hints hold after a correction; a session has to learn it.
    assert near["full_closed_form"] == pytest.approx(near["chosen"]["full"], rel=0.2)
    assert 0.7 < far["full_closed_form"] / far["chosen"]["full"] < 1.05


@pytest.mark.nightly
def test_side_branches_save_little_and_nothing_on_slow_links(tmp_path):
    found = run_latency(
        "branches", "--rtt", "0,5", "--tokens", "0", "--audio", SAMPLE, figures=tmp_path / "json"
    )
    ratios = {one["mode"]: one["ratios"] for one in found["branches"]}
    assert all(0.85 < ratio < 1.02 for of_mode in ratios.values() for ratio in of_mode.values())


@pytest.mark.nightly
def test_distant_clients_wait_longer(tmp_path):
    arguments = ("--clients", "8", "--rtt-ms", "5,400", "--duration-s", "60", "--audio", SAMPLE)
    found = run_latency("simulate", *arguments, figures=tmp_path / "json")
    for one in found["tables"][0]["simulated"]:
        near_s, far_s = one["outcome"]["p95_by_round_trip_s"]
        assert near_s < far_s <= 60


@pytest.mark.nightly
def test_a_population_is_simulated(tmp_path):
    arguments = ("--clients", "4,16", "--duration-s", "60", "--audio", SAMPLE)
    found = run_latency("simulate", *arguments, figures=tmp_path / "json")
    (table,) = found["tables"]
    lags = {(one["mode"], one["num_clients"]): one["outcome"]["lag_s"][1] for one in table["simulated"]}
    assert set(lags) == {("target-only", 4), ("target-only", 16), ("full", 4), ("full", 16)}
    assert all(0 < lag_s < 60 for lag_s in lags.values())
    assert table["acceptance"] == pytest.approx(0.94, abs=0.02)
