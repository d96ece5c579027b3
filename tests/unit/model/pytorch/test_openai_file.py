"""Files of openai-whisper hold the weights, tokens and rules of the checkpoint they were made of."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.common.models.checkpoints import Shape, save_checkpoint
from experiments.peers.formats import save_openai
from specwhisper.errors import CheckpointError, MissingExtra
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.pytorch import openai_file
from tests.nightly import mostly_nightly
from tests.unit.model.checkpoints.folders import COMMIT, in_hubs_cache
from tests.unit.model.checkpoints.test_tokenizer import TEXTS

SHAPES = {
    "large-v3": Shape(words="multilingual", cantonese=True, d_model=8, heads=1, ffn_factor=4),
    "tiny": Shape(words="multilingual", d_model=8, heads=1, ffn_factor=4),
    "tiny.en": Shape(words="gpt2", english_only=True, d_model=8, heads=1, ffn_factor=4),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """Return folders of transformers and files of openai-whisper by name."""
    parent = tmp_path_factory.mktemp("openai")
    folders = {name: save_checkpoint(shape, parent / name) for name, shape in SHAPES.items()}
    return {
        name: (folder, save_openai(str(folder), parent / f"{name}.pt")) for name, folder in folders.items()
    }


def assert_same(file: Path, folder: Path) -> None:
    ours, theirs = load_checkpoint(str(file)), load_checkpoint(str(folder))
    assert ours.sizes == theirs.sizes
    assert ours.vocabulary == theirs.vocabulary
    assert ours.weights.keys() == theirs.weights.keys()
    assert all(np.array_equal(ours.weights[key], theirs.weights[key]) for key in theirs.weights)
    assert ours.tokenizer is not None and theirs.tokenizer is not None
    assert [ours.tokenizer.encode(text) for text in TEXTS] == [theirs.tokenizer.encode(t) for t in TEXTS]


@pytest.mark.parametrize("name", mostly_nightly(["tiny.en", "large-v3"]))
def test_a_file_is_the_checkpoint_it_was_made_of(name: str, saved: dict[str, tuple[Path, Path]]):
    folder, file = saved[name]
    assert_same(file, folder)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch) -> Path:
    """Return an empty cache of the hub, on a machine without openai-whisper and fetched models."""
    monkeypatch.setenv("SPECWHISPER_HOME", str(tmp_path / "fetched"))
    monkeypatch.setattr(openai_file, "PACKAGE", "no-such-package")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_a_cached_model_has_the_tokenizer(saved: dict[str, tuple[Path, Path]], cache: Path):
    folder, file = saved["tiny"]
    for name, source in (("Systran/faster-whisper-tiny.en", "tiny.en"), ("openai/whisper-base", "tiny")):
        in_hubs_cache(saved[source][0], cache, name)
    assert_same(file, folder)
    for path in (cache / "models--openai--whisper-base" / "snapshots" / COMMIT).iterdir():
        if path.name.startswith(("tokenizer", "vocab", "merges")):
            path.unlink()
    with pytest.raises(CheckpointError, match="none of its kind is on this machine"):
        load_checkpoint(str(file))


@pytest.mark.parametrize("name", ["large-v3", "tiny.en"])
def test_without_a_tokenizer_a_sentence_says_what_to_do(name: str, saved, cache: Path):
    with pytest.raises(
        CheckpointError,
        match=r"holds no tokenizer, and none of its kind is on this machine: install the package no-such-"
        rf"package, or fetch openai/whisper-{name} from the hub\.$",
    ):
        load_checkpoint(str(saved[name][1]))


def test_without_torch_a_sentence_says_what_to_do(saved: dict[str, tuple[Path, Path]], monkeypatch):
    monkeypatch.delitem(sys.modules, "specwhisper.model.pytorch.openai_file", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        MissingExtra, match=r"a file of PyTorch, needs torch: pip install 'specwhisper\[server\]'"
    ):
        load_checkpoint(str(saved["tiny"][1]))


class Code:
    """Something that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("ran",)


WEIGHT = torch.ones(2)
DIMENSIONS = {"n_vocab": 51_865, "n_audio_ctx": 1500, "n_audio_head": 1, "n_audio_layer": 1, "n_mels": 80}
DIMENSIONS |= {"n_text_ctx": 448, "n_text_head": 1, "n_text_layer": 1}
DIMENSIONS |= {"n_audio_state": 8, "n_text_state": 8}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (Code(), "may run code: fetch it again, or save the model as safetensors"),
        ({"weight": WEIGHT}, "is a PyTorch file, but not openai-whisper's"),
        ([WEIGHT], "is a PyTorch file, but not openai-whisper's"),
        ({"dims": {}, "model_state_dict": {"it": WEIGHT}}, r"\(it has no number as n_vocab\)"),
        ({"dims": DIMENSIONS, "model_state_dict": {"it": 1}}, "holds something else than weights"),
        ({"dims": DIMENSIONS, "model_state_dict": {}}, r"it has fewer weights \(0\) than layers \(1\)"),
        ({"dims": DIMENSIONS, "model_state_dict": {"it": WEIGHT}}, r"is incomplete: \d+ weights are missing"),
        (
            {"dims": DIMENSIONS | {"n_audio_head": 3}, "model_state_dict": {"it": WEIGHT}},
            "The dims entry of model '.*' divides d_model=8 by 3 attention heads",
        ),
        (
            {"dims": DIMENSIONS | {"n_vocab": 7}, "model_state_dict": {"it": WEIGHT}},
            "it has 7 tokens, not 51864, 51865, 51866 as published models have",
        ),
    ],
)
def test_other_files_are_refused_in_a_sentence(content: Any, problem: str, tmp_path: Path, capsys):
    torch.save(content, tmp_path / "it.pt")
    with pytest.raises(CheckpointError, match=problem) as raised:
        load_checkpoint(str(tmp_path / "it.pt"))
    assert str(raised.value).endswith(".") and "\n" not in str(raised.value)
    assert capsys.readouterr().out == ""


def test_a_truncated_file_is_refused_in_a_sentence(tmp_path: Path):
    path = tmp_path / "it.pt"
    torch.save({"dims": DIMENSIONS, "model_state_dict": {"it": WEIGHT}}, path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(
        CheckpointError, match=r"it\.pt' is truncated or damaged \(Pytorch[^.]*\): fetch it again\.$"
    ):
        load_checkpoint(str(path))
