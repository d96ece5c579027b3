"""Folders of CTranslate2 hold the weights, tokens and rules of the checkpoint they were made of."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from tests.unit.model.checkpoints.binary_files import ctranslate2_file
from tests.unit.model.checkpoints.folders import in_hubs_cache

DEMO = load_checkpoint("demo-draft-tiny")


def variables_of(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Return a checkpoint's weights under CTranslate2's names, with rows of Q, K and V fused."""
    weights, found = checkpoint.weights, dict[str, np.ndarray]()

    def linear(ours: str, theirs: str, parts: tuple[str, ...] = ("",)) -> None:
        for kind in ("weight", "bias"):
            arrays = [weights.get(f"{ours}{part}.{kind}") for part in parts]
            present = [np.zeros(checkpoint.sizes.d_model) if a is None else a for a in arrays]
            found[f"{theirs}/{kind}"] = np.concatenate(present)

    def norm(ours: str, theirs: str) -> None:
        found[f"{theirs}/gamma"], found[f"{theirs}/beta"] = weights[f"{ours}.weight"], weights[f"{ours}.bias"]

    for side, layers in (
        ("encoder", checkpoint.sizes.encoder_layers),
        ("decoder", checkpoint.sizes.decoder_layers),
    ):
        root = f"model.{side}"
        found[f"{side}/position_encodings/encodings"] = weights[f"{root}.embed_positions.weight"]
        found[f"{side}/num_heads"] = np.array(checkpoint.sizes.decoder_attention_heads, np.int16)
        norm(f"{root}.layer_norm", f"{side}/layer_norm")
        for i in range(layers):
            ours, theirs = f"{root}.layers.{i}", f"{side}/layer_{i}"
            norm(f"{ours}.self_attn_layer_norm", f"{theirs}/self_attention/layer_norm")
            linear(f"{ours}.self_attn.", f"{theirs}/self_attention/linear_0", ("q_proj", "k_proj", "v_proj"))
            linear(f"{ours}.self_attn.out_proj", f"{theirs}/self_attention/linear_1")
            if side == "decoder":
                norm(f"{ours}.encoder_attn_layer_norm", f"{theirs}/attention/layer_norm")
                linear(f"{ours}.encoder_attn.q_proj", f"{theirs}/attention/linear_0")
                linear(f"{ours}.encoder_attn.", f"{theirs}/attention/linear_1", ("k_proj", "v_proj"))
                linear(f"{ours}.encoder_attn.out_proj", f"{theirs}/attention/linear_2")
            norm(f"{ours}.final_layer_norm", f"{theirs}/ffn/layer_norm")
            linear(f"{ours}.fc1", f"{theirs}/ffn/linear_0")
            linear(f"{ours}.fc2", f"{theirs}/ffn/linear_1")
    for conv in ("conv1", "conv2"):
        linear(f"model.encoder.{conv}", f"encoder/{conv}")
    found["decoder/embeddings/weight"] = weights["model.decoder.embed_tokens.weight"]
    return found


def converted(variables: dict[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """Return variables as a converter stores them in a dtype."""
    found = dict[str, np.ndarray]()
    for name, array in variables.items():
        if array.dtype == np.int16:
            found[name] = array
        elif dtype == "int8" and array.ndim == 2 and name.endswith("/weight"):
            scale = (127 / np.abs(array).max(axis=1)).astype(np.float32)
            found[name] = np.rint(array * scale[:, None]).astype(np.int8)
            found[f"{name}_scale"] = scale
        elif dtype == "bfloat16":
            found[name] = (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        else:
            found[name] = array.astype("float32" if dtype == "int8" else dtype)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that lacks only the weights."""
    source = Path(resolve("demo-draft-tiny"))
    generation = json.loads((source / "generation_config.json").read_text())
    folder = tmp_path / "converted"
    folder.mkdir()
    shutil.copy(source / "tokenizer.json", folder)
    config = {
        "suppress_ids": generation["suppress_tokens"],
        "suppress_ids_begin": generation["begin_suppress_tokens"],
        "lang_ids": list(generation.get("lang_to_id", {}).values()),
        "alignment_heads": [list(head) for head in DEMO.alignment_heads],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_weights_tokens_and_rules_are_those_that_were_converted(dtype: str, folder: Path, caplog):
    caplog.set_level(logging.INFO)
    (folder / "model.bin").write_bytes(ctranslate2_file(converted(variables_of(DEMO), dtype)))
    ours = load_checkpoint(str(folder))
    assert ours.sizes == replace(DEMO.sizes, tie_word_embeddings=True)
    assert list(ours.weights) == list(DEMO.weights)
    tolerance = {"float32": 0, "float16": 1e-3, "bfloat16": 1e-2, "int8": 1e-2}[dtype]
    for name, expected in DEMO.weights.items():
        atol = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(ours.weights[name], expected, rtol=0, atol=atol, err_msg=name)
    assert ours.weights_digest != DEMO.weights_digest
    assert (ours.alignment_heads, ours.vocabulary) == (DEMO.alignment_heads, DEMO.vocabulary)
    assert ("is quantised" in caplog.text) == (dtype == "int8")


def test_the_folder_of_a_model_in_the_hubs_cache(folder: Path, tmp_path: Path):
    (folder / "model.bin").write_bytes(ctranslate2_file(converted(variables_of(DEMO), "float16")))
    root = in_hubs_cache(folder, tmp_path, "someone/whisper")
    assert load_checkpoint(str(root)).weights_digest == load_checkpoint(str(folder)).weights_digest
    with pytest.raises(CheckpointError, match="holds no snapshot of revision 'v2': fetch it again"):
        load_checkpoint(str(root), revision="v2")


@pytest.mark.parametrize(
    ("name", "shape", "problem"),
    [
        (
            "decoder/layer_0/ffn/linear_1/weight",
            None,
            "weight 'model.decoder.layers.0.fc2.weight' is missing;",
        ),
        ("decoder/embeddings/weight", (3,), "has no"),
        ("encoder/num_heads", None, "has no 'encoder/num_heads' of a Whisper model"),
    ],
)
def test_incomplete_files_are_refused(name: str, shape: tuple[int, ...] | None, problem: str, folder: Path):
    variables = converted(variables_of(DEMO), "float32")
    variables.pop(name, None)
    if shape is not None:
        variables[name] = np.zeros(shape, np.float32)
    (folder / "model.bin").write_bytes(ctranslate2_file(variables))
    with pytest.raises(CheckpointError, match=problem):
        load_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            None,
            r"Model '.*' has neither a model_type in its config\.json nor CTranslate2's model\.bin: fetch",
        ),
        (
            b"",
            r"The model\.bin of model '.*' isn't a CTranslate2 model, so it is empty, damaged or of another",
        ),
        (b"version https://git-lfs.github.com/spec/v1\n", "run git lfs pull in its folder"),
        (
            ctranslate2_file({}, spec="TransformerSpec"),
            "is a TransformerSpec of version 6, not a WhisperSpec",
        ),
    ],
)
def test_missing_and_damaged_weights_are_not_said_to_be_pickled(
    content: bytes | None, problem: str, folder: Path
):
    if content is not None:
        (folder / "model.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=problem):
        load_checkpoint(str(folder))


@pytest.mark.parametrize("weights", ["weights.npz", "weights.safetensors"])
def test_a_folder_of_mlx_is_refused_in_a_sentence(weights: str, tmp_path: Path):
    config = {"model_type": "whisper", "n_mels": 80, "n_audio_state": 384}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / weights).touch()
    with pytest.raises(CheckpointError, match="is in MLX's format, which is not supported: name another"):
        load_checkpoint(str(tmp_path))
