"""Files of whisper.cpp hold the weights, tokens and rules of the checkpoint they were made of."""

import logging
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from experiments.common.models.checkpoints import Shape, save_checkpoint
from experiments.peers.formats import save_ggml
from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.ggml import BLOCK, GgmlModel
from tests.nightly import mostly_nightly
from tests.unit.model.checkpoints.binary_files import LAYOUTS, NUM_TOKENS, blocks_of, ggml_file, ints, tensor
from tests.unit.model.checkpoints.test_tokenizer import TEXTS

SHAPES = {
    "English-only": Shape(words="gpt2", english_only=True, d_model=32, heads=1, ffn_factor=4),
    "multilingual": Shape(words="multilingual", cantonese=True, d_model=32, heads=1, ffn_factor=4),
}
load = cache(load_checkpoint)  # merges of all tokens are found at each call


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Callable[[str], tuple[Path, Path]]:
    """Return what saves a folder of transformers and its float16 file, once for each name."""
    parent = tmp_path_factory.mktemp("ggml")

    @cache
    def save(name: str) -> tuple[Path, Path]:
        folder = save_checkpoint(SHAPES[name], parent / name)
        return folder, save_ggml(str(folder), parent / f"{name}.bin", is_int8=False)

    return save


@pytest.mark.parametrize("name", mostly_nightly(SHAPES))
def test_a_file_is_the_checkpoint_it_was_made_of(name: str, saved):
    folder, file = saved(name)
    ours, theirs = load(str(file)), load_checkpoint(str(folder))
    assert ours.sizes == theirs.sizes
    assert ours.vocabulary == theirs.vocabulary
    assert ours.max_new_tokens == theirs.max_new_tokens
    assert list(ours.weights) == list(theirs.weights)
    for key, weight in theirs.weights.items():
        is_whole = weight.ndim == 1 or "positions" in key
        np.testing.assert_array_equal(ours.weights[key], weight if is_whole else weight.astype(np.float16))
    assert ours.tokenizer is not None and theirs.tokenizer is not None
    assert [ours.tokenizer.encode(text) for text in TEXTS] == [theirs.tokenizer.encode(t) for t in TEXTS]


def test_a_quantised_file_is_another_target(saved, tmp_path: Path, caplog):
    caplog.set_level(logging.INFO)
    folder, file = saved("English-only")
    ours = load_checkpoint(str(save_ggml(str(folder), tmp_path / "q8_0.bin", is_int8=True)))
    theirs = load(str(file))
    for key, weight in theirs.weights.items():
        np.testing.assert_allclose(ours.weights[key], weight, rtol=0, atol=np.abs(weight).max() / 200)
    assert ours.weights_digest != theirs.weights_digest
    assert caplog.text.count("is quantised: its text is that of these weights") == 1


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
    weights, _ = GgmlModel("it", path).weights()
    half = len(data) // 2
    expected = [multiplied_out(type_, data[:half]), multiplied_out(type_, data[half:])]
    np.testing.assert_allclose(weights["model.decoder.it"], expected, rtol=1e-6)


BIAS = tensor("encoder.conv1.bias", 0, (1,), bytes(4))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"lmgg", r"\(it.bin is cut off\): fetch or save it again"),
        (ggml_file(BIAS)[:-1], r"\(it.bin is cut off\): fetch or save it again"),
        (
            ggml_file(tensor("it", 12, (256,), bytes(200))),
            "'it' has ggml's type 12: choose a file in f32",
        ),
        (ggml_file(tensor("it", 8, (31,), b"")), "rows of 'it' are not in blocks of 32"),
        (ggml_file(ints(5, 0, 0)), "a tensor has 5 axes"),
        (ggml_file(BIAS, n_vocab=NUM_TOKENS + 3), "has 51867 tokens, not 51864, 51865, 51866 as published"),
        (ggml_file(BIAS), r"\(it.bin has 2 of 50256 text tokens\)"),
        (ggml_file(BIAS, n_text_state=2), "its encoder and its decoder differ in width"),
        (ggml_file(BIAS, n_text_layer=1 << 30), r"has fewer weights \(1\) than layers \(1073741824\)"),
        (ggml_file(BIAS, n_audio_head=0), "The header of model '.*' has encoder_attention_heads=0"),
        (
            ggml_file(BIAS, n_audio_ctx=(1 << 32) - 5),
            "max_source_positions=-5, which must be a whole number above 0",
        ),
        (ggml_file(BIAS, n_audio_ctx=1), "has max_source_positions=1, but windows of 30 s have 1500"),
        (b"GGUF" + bytes(100), r"is a GGUF file: name whisper.cpp's ggml-\*.bin of the model, or a folder"),
        (b"\x80\x02}q\x00.", "is a pickle, which can carry code"),
        (struct.pack("<Q", 2) + b"{}", "is a safetensors file: name the folder that holds it"),
        (b"\x06\0\0\0\x0c\0WhisperSpec\0", "is a CTranslate2 model's weights: name the folder"),
        (b"version https://git-lfs.github.com/spec/v1\n", "run git lfs pull in its folder"),
        (b"", "isn't a model's file: name"),
        (b"<html>", "isn't a model's file: name"),
    ],
)
def test_other_files_are_refused_in_a_sentence(data: bytes, problem: str, tmp_path: Path):
    path = tmp_path / "it.bin"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=problem) as raised:
        load_checkpoint(str(path))
    assert str(raised.value).endswith(".") and "\n" not in str(raised.value)
