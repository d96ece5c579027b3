"""Bars, machine facts and the JSON that carries them."""

import io
import json

import pytest
from rich.console import Console

from experiments.common.bench.report import Bar, machine_facts, print_bars, version_facts, write_json


@pytest.mark.parametrize(("value", "verdict"), [(0.5, "holds"), (1.0, "short"), (float("nan"), "short")])
def test_a_bar_is_one_line_with_its_verdict(value, verdict):
    out = io.StringIO()
    bar = Bar("full over transformers", value, 1.0, f"{value:.2f} [0.40, 0.60]")
    assert print_bars([bar], Console(file=out, width=200)) == (verdict == "holds")
    assert out.getvalue() == f"full over transformers: {value:.2f} [0.40, 0.60], bar < 1: {verdict}\n"


@pytest.mark.parametrize(("value", "verdict"), [(0.9, "short"), (1.0, "holds"), (float("nan"), "short")])
def test_a_bar_may_be_a_least_value(value, verdict):
    assert str(Bar("share", value, 1.0, "x", at_least=True)) == f"share: x, bar >= 1: {verdict}"


def test_json_has_machine_versions_models_and_command(tmp_path):
    path = tmp_path / "figures.json"
    write_json(path, models={"target": {"name": "tiny"}}, figures={"seconds": [1.5]})
    content = json.loads(path.read_text())
    assert content["seconds"] == [1.5]
    assert content["models"]["target"]["name"] == "tiny"
    assert content["machine"].keys() == machine_facts().keys() == {
        "cpu", "cores", "memory_gb", "os", "load_at_start", "load_average"
    }  # fmt: skip
    assert content["machine"]["cores"] >= 1
    assert {"python", "torch", "transformers", "grpcio", "specwhisper"} <= content["versions"].keys()
    assert content["versions"] == version_facts()
    assert content["command"].startswith("python -m ")
