"""Files of whisper.cpp and openai-whisper hold the weights, tokens and rules of their checkpoint."""

import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.common.models.checkpoints import Shape, save_checkpoint
from experiments.peers.formats import save_ggml, save_openai
from specwhisper.errors import CheckpointError, MissingExtra
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.ggml import BLOCK, GgmlModel
from specwhisper.model.pytorch import openai_file
from tests.nightly import mostly_nightly
from tests.unit.model.checkpoints.binary_files import LAYOUTS, NUM_TOKENS, blocks_of, ggml_file, ints, tensor
from tests.unit.model.checkpoints.folders import COMMIT, in_hubs_cache
from tests.unit.model.checkpoints.test_tokenizer import TEXTS

SHAPES = {
    "tiny.en": Shape(words="gpt2", english_only=True, d_model=32, heads=1, ffn_factor=4),
    "tiny": Shape(words="multilingual", d_model=32, heads=1, ffn_factor=4),
    "large-v3": Shape(words="multilingual", cantonese=True, d_model=32, heads=1, ffn_factor=4),
}
Saved = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Saved:
    """Return what saves a checkpoint in a format, once for each: its name, and the end of the path."""
    parent = tmp_path_factory.mktemp("files")

    @cache
    def save(name: str, suffix: str = "") -> Path:
        path = parent / f"{name}{suffix}"
        if suffix == ".pt":
            return save_openai(str(save(name)), path)
        if suffix:
            return save_ggml(str(save(name)), path, is_int8=False)
        return save_checkpoint(SHAPES[name], path)

    return save


def assert_same(file: Path, folder: Path) -> None:
    ours, theirs = load_checkpoint(str(file)), load_checkpoint(str(folder))
    assert (ours.sizes, ours.vocabulary) == (theirs.sizes, theirs.vocabulary)
    assert ours.max_new_tokens == theirs.max_new_tokens
    assert list(ours.weights) == list(theirs.weights)
    for key, weight in theirs.weights.items():
        is_half = file.suffix == ".bin" and weight.ndim > 1 and "positions" not in key
        np.testing.assert_array_equal(ours.weights[key], weight.astype(np.float16) if is_half else weight)
    assert ours.tokenizer is not None and theirs.tokenizer is not None
    assert [ours.tokenizer.encode(text) for text in TEXTS] == [theirs.tokenizer.encode(t) for t in TEXTS]


@pytest.mark.parametrize("name", mostly_nightly(["tiny.en", "large-v3"]))
@pytest.mark.parametrize("suffix", [".bin", ".pt"])
def test_a_file_is_the_checkpoint_it_was_made_of(name: str, suffix: str, saved: Saved):
    assert_same(saved(name, suffix), saved(name))


def multiplied_out(type_: int, block: bytes) -> list[float]:
    """Return the numbers of a block, one by one."""
    scale, *more, packed = struct.unpack(LAYOUTS[type_], block)
    if type_ == 8:
        return [scale * number for number in struct.unpack("32b", packed)]
    minimum = more.pop(0) if type_ in (3, 7) else None
    fifth_bits = more[0] if more else None
    numbers = []
    for i in range(BLOCK):
        number = packed[i % 16] >> 4 if i >= 16 else packed[i] & 15
        if fifth_bits is not None:
            number += 16 * (fifth_bits >> i & 1)
        middle = 8 if fifth_bits is None else 16
        numbers.append(number * scale + minimum if minimum is not None else (number - middle) * scale)
    return numbers


@pytest.mark.parametrize("type_", LAYOUTS)
def test_blocks_are_multiplied_out(type_: int, tmp_path: Path):
    path, data = tmp_path / "blocks.bin", blocks_of(type_)
    path.write_bytes(ggml_file(tensor("decoder.it", type_, (2, BLOCK), data)))
    model = GgmlModel("it", path)
    assert model.is_quantised
    weights, _ = model.weights()
    half = len(data) // 2
    expected = [multiplied_out(type_, data[:half]), multiplied_out(type_, data[half:])]
    np.testing.assert_allclose(weights["model.decoder.it"], expected, rtol=1e-6)


def test_a_cached_model_has_the_tokenizer_of_a_pt_file(saved: Saved, tmp_path: Path, monkeypatch):
    """The machine has neither openai-whisper nor fetched models."""
    monkeypatch.setenv("SPECWHISPER_HOME", str(tmp_path / "fetched"))
    monkeypatch.setattr(openai_file, "PACKAGE", "no-such-package")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    file = saved("tiny", ".pt")
    for name, source in (("Systran/faster-whisper-tiny.en", "tiny.en"), ("openai/whisper-base", "tiny")):
        in_hubs_cache(saved(source), tmp_path, name)
    assert_same(file, saved("tiny"))
    for path in (tmp_path / "models--openai--whisper-base" / "snapshots" / COMMIT).iterdir():
        if path.name.startswith(("tokenizer", "vocab", "merges")):
            path.unlink()
    with pytest.raises(
        CheckpointError,
        match=r"holds no tokenizer, and none of its kind is on this machine: install the package no-such-"
        r"package, or fetch openai/whisper-tiny from the hub\.$",
    ):
        load_checkpoint(str(file))


def test_without_torch_a_sentence_says_what_to_do(saved: Saved, monkeypatch):
    file = saved("tiny.en", ".pt")
    monkeypatch.delitem(sys.modules, "specwhisper.model.pytorch.openai_file", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        MissingExtra, match=r"a file of PyTorch, needs torch: pip install 'specwhisper\[server\]'"
    ):
        load_checkpoint(str(file))


class Code:
    """Something that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("ran",)


BIAS = tensor("encoder.conv1.bias", 0, (1,), bytes(4))
WEIGHT = torch.ones(2)
DIMENSIONS = {"n_vocab": 51_865, "n_audio_ctx": 1500, "n_audio_head": 1, "n_audio_layer": 1, "n_mels": 80}
DIMENSIONS |= {"n_text_ctx": 448, "n_text_head": 1, "n_text_layer": 1}
DIMENSIONS |= {"n_audio_state": 8, "n_text_state": 8}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (ggml_file(BIAS)[:-1], r"\(it is cut off\): fetch or save it again"),
        (
            ggml_file(tensor("it", 12, (256,), bytes(200))),
            "'it' has ggml's type 12: choose a file in f32",
        ),
        (ggml_file(tensor("it", 8, (31,), b"")), "rows of 'it' are not in blocks of 32"),
        (ggml_file(ints(5, 0, 0)), "a tensor has 5 axes"),
        (ggml_file(BIAS, n_vocab=NUM_TOKENS + 3), "has 51867 tokens, not 51864, 51865, 51866 as published"),
        (ggml_file(BIAS), r"\(it has 2 of 50256 text tokens\)"),
        (ggml_file(BIAS, n_text_state=2), "its encoder and its decoder differ in width"),
        (ggml_file(BIAS, n_text_layer=1 << 30), r"has fewer weights \(1\) than layers \(1073741824\)"),
        (ggml_file(BIAS, n_audio_ctx=1), "has max_source_positions=1, but windows of 30 s have 1500"),
        (b"GGUF" + bytes(100), r"is a GGUF file: name whisper.cpp's ggml-\*.bin of the model, or a folder"),
        (b"\x80\x02}q\x00.", "is a pickle, which can carry code"),
        (struct.pack("<Q", 2) + b"{}", "is a safetensors file: name the folder that holds it"),
        (b"\x06\0\0\0\x0c\0WhisperSpec\0", "is a CTranslate2 model's weights: name the folder"),
        (b"version https://git-lfs.github.com/spec/v1\n", "run git lfs pull in its folder"),
        (b"<html>", "isn't a model's file: name"),
        (Code(), "may run code: fetch it again, or save the model as safetensors"),
        ({"weight": WEIGHT}, "is a PyTorch file, but not openai-whisper's"),
        ({"dims": {}, "model_state_dict": {"it": WEIGHT}}, r"\(it has no number as n_vocab\)"),
        ({"dims": DIMENSIONS, "model_state_dict": {"it": 1}}, "holds something else than weights"),
        ({"dims": DIMENSIONS, "model_state_dict": {"it": WEIGHT}}, r"is incomplete: \d+ weights are missing"),
        (
            {"dims": DIMENSIONS | {"n_audio_head": 3}, "model_state_dict": {"it": WEIGHT}},
            "The dims entry of model '.*' divides d_model=8 by 3 attention heads",
        ),
    ],
)
def test_other_files_are_refused_in_a_sentence(content: Any, problem: str, tmp_path: Path, capsys):
    path = tmp_path / "it"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(CheckpointError, match=problem) as raised:
        load_checkpoint(str(path))
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
