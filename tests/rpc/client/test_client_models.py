"""The command line lists models of this machine."""

import json
from pathlib import Path

import pytest

from specwhisper_client.cli.models_command import local_models_table
from tests.rpc.terminals import run_cli


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch) -> None:
    """Hide what is on this machine."""
    for variable in ("SPECWHISPER_HOME", "XDG_CACHE_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path))


async def test_models_are_a_table_or_json():
    status, out, err = await run_cli("models")
    assert (status, err) == (0, "")
    [row] = [line for line in out.splitlines() if line.startswith("demo-draft-distil")]
    assert row.split() == "demo-draft-distil safetensors 7 4 + 2 x 192 demo-target".split()
    status, out, err = await run_cli("models", "--json")
    assert (status, err) == (0, "")
    found = {model["name"]: model["drafts_for"] for model in json.loads(out)}
    assert found == {
        "demo-target": [],
        "demo-draft-tiny": ["demo-target", "demo-draft-distil"],
        "demo-draft-distil": ["demo-target"],
    }


def test_an_english_only_model_drafts_for_a_multilingual_one_in_english():
    shape = dict.fromkeys(("encoder_layers", "decoder_layers", "width", "tokens"), 1)
    common = {"format": "ggml", "quantised": False, "bytes": 1, **shape}
    names = {"tiny.en": (["base.en", "base"], True), "base.en": ([], True), "base": ([], False)}
    table = local_models_table(
        [
            {"name": name, "drafts_for": targets, "english_only": english, **common}
            for name, (targets, english) in names.items()
        ]
    )
    assert list(table.columns[-1].cells) == ["base.en\nbase in English", "", ""]


async def test_a_model_that_cannot_be_fetched_is_one_sentence_and_status_1():
    status, out, err = await run_cli("models", "get", "small")
    assert (status, out) == (1, "")
    assert err.startswith("error: 'small' is none of tiny.en, base: name one of these; ")
