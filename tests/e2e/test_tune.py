"""``specwhisper tune`` measures a link and advises a mode."""

import json
from math import prod

import pytest

from tests.e2e.processes import run

pytestmark = pytest.mark.timeout(600)


@pytest.mark.nightly
def test_the_advice_follows_the_measurements(start_server, tmp_path):
    target = start_server(
        "specwhisper_target_server", "--model", "demo-target", "--port", "0", "--threads", "1"
    )
    figures = tmp_path / "figures.json"
    arguments = ("--target", target.address, "--threads", "1", "--seconds", "0", "--json", str(figures))
    status, out, err = run("specwhisper", "tune", *arguments)
    assert status == 0, err
    figures_read = json.loads(figures.read_text())

    rounds = figures_read["rounds"]
    assert len(rounds) == 2
    means_s = {mode: prod(each[mode] for each in rounds) ** (1 / len(rounds)) for mode in rounds[0]}
    assert set(means_s) == {"target-only", "sync", "pipelined", "full"}
    measured = {each["mode"]: each for each in figures_read["measured"]}
    for mode, mean_s in means_s.items():
        assert measured[mode]["time_per_token_s"] == pytest.approx(mean_s)
    advised = figures_read["mode"]  # tests/unit/client/test_advice.py shows why
    assert f"Run --mode {advised}: " in out
    assert f"Speed, as measured: {1e3 * means_s[advised]:.1f} ms per token" in out
    assert f"Draft length: {figures_read['gamma']}." in out


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("draft", "sentence"),
    [
        ("demo-draft-tiny", "No server answers at target 127.0.0.1:9"),
        ("/no/such/folder", "The draft server did not start: "),
    ],
)
def test_a_missing_target_or_draft_model_is_named(draft, sentence):
    arguments = ("--target", "127.0.0.1:9", "--draft-model", draft, "--seconds", "0")
    status, out, err = run("specwhisper", "tune", *arguments)
    assert (status, out) == (1, "")
    assert sentence in err and (draft in err or sentence.startswith("No server"))
    assert "Traceback" not in err
