"""The models of this machine are listed, wherever other programs keep them."""

import json
import sys
from pathlib import Path

import pytest

from experiments.common.models.checkpoints import Shape, save_checkpoint
from experiments.peers.formats import save_openai
from specwhisper.model.local import local_models
from tests.unit.model.checkpoints.folders import in_hubs_cache

SMALL = Shape(words="gpt2", english_only=True, d_model=8, heads=1, ffn_factor=4)
LARGE = Shape(words="made-up", d_model=64, encoder_layers=2)


@pytest.fixture
def caches(tmp_path: Path, monkeypatch) -> Path:
    """Return a folder with the caches of this program, the hub and openai-whisper."""
    base = save_checkpoint(LARGE, tmp_path / "home" / "models" / "base")
    in_hubs_cache(save_checkpoint(SMALL, tmp_path / "saved"), tmp_path / "hub", "someone/whisper")
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat" / "config.json").write_text('{"model_type": "llama"}')
    in_hubs_cache(tmp_path / "chat", tmp_path / "hub", "someone/chat")
    (tmp_path / "whisper").mkdir()
    save_openai(str(tmp_path / "saved"), tmp_path / "whisper" / "tiny.en.pt")
    (tmp_path / "whisper" / "cut-off.pt").write_bytes(b"PK\x03\x04")
    monkeypatch.setenv("SPECWHISPER_HOME", str(base.parents[1]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def test_models_are_listed_with_those_they_may_help(caches: Path):
    found = {model["name"]: model for model in local_models()}
    file = str(caches / "whisper" / "tiny.en.pt")
    bundled = ["demo-target", "demo-draft-tiny", "demo-draft-distil"]
    assert list(found) == [*bundled, "base", "someone/whisper", file]
    assert [found[name]["format"] for name in ("base", file)] == ["safetensors", "PyTorch"]
    assert found["base"]["path"] == str(caches / "home" / "models" / "base")
    assert (
        found["base"]["bytes"] == (caches / "home" / "models" / "base" / "model.safetensors").stat().st_size
    )
    assert found["base"]["drafts_for"] == []
    assert found[file]["drafts_for"] == found["someone/whisper"]["drafts_for"] == ["base"]
    assert found["demo-draft-distil"]["drafts_for"] == ["demo-target"]  # its few words help no real model
    assert (found[file]["english_only"], found["base"]["english_only"]) == (True, False)
    assert (found[file]["tokens"], found[file]["width"]) == (51_864, 8)
    assert found[file]["parameters"] == found["someone/whisper"]["parameters"]
    json.dumps(list(found.values()))


def test_without_torch_a_file_of_pytorch_has_no_sizes(caches: Path, monkeypatch):
    monkeypatch.delitem(sys.modules, "specwhisper.model.pytorch.openai_file", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    model = next(model for model in local_models() if model["name"].endswith("tiny.en.pt"))
    assert model["bytes"] > 0
    assert (model["parameters"], model["width"], model["drafts_for"]) == (None, None, [])
