"""Folders of ONNX files, as optimum and transformers.js have them, hold the weights of a checkpoint."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn
from transformers import WhisperForConditionalGeneration

from experiments.common.models.checkpoints import Shape, save_checkpoint
from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint

SHAPE = Shape(seed=3, d_model=32, encoder_layers=2)


class Decoder(nn.Module):
    """A decoder without a past, with the names that optimum gives its nodes."""

    def __init__(self, whisper: WhisperForConditionalGeneration) -> None:
        super().__init__()
        self.model, self.proj_out = whisper.model, whisper.proj_out

    def forward(self, tokens: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
        mask = torch.ones_like(tokens)
        states = self.model.decoder(tokens, mask, encoder_hidden_states=encoded, use_cache=False)
        return self.proj_out(states.last_hidden_state)


def export(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    with warnings.catch_warnings():  # of tracing, and of an exporter that has a successor
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), inputs, path, dynamo=False, opset_version=18)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return save_checkpoint(SHAPE, tmp_path_factory.mktemp("models") / "saved")


@pytest.fixture(scope="module")
def exported(saved, tmp_path_factory) -> Path:
    """Export the saved checkpoint as optimum does: both files beside the others."""
    folder = tmp_path_factory.mktemp("models") / "exported"
    shutil.copytree(saved, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    whisper = WhisperForConditionalGeneration.from_pretrained(saved, attn_implementation="eager")
    export(whisper.get_encoder(), (torch.zeros(1, 80, 3_000),), folder / "encoder_model.onnx")
    inputs = torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 1_500, SHAPE.d_model)
    export(Decoder(whisper), inputs, folder / "decoder_model.onnx")
    return folder


def check_equal(folder: Path, saved: Path, **tolerance: float) -> None:
    ours, expected = load_checkpoint(str(folder)), load_checkpoint(str(saved))
    assert list(ours.weights) == list(expected.weights)
    for name in expected.weights:
        np.testing.assert_allclose(ours.weights[name], expected.weights[name], err_msg=name, **tolerance)


def copied(exported: Path, folder: Path, to: str = ".", *, has_data: bool = True) -> Path:
    """Copy a folder, its ONNX files to a folder in it, with weights in files of their own."""
    shutil.copytree(exported, folder, ignore=shutil.ignore_patterns("*.onnx"))
    (folder / to).mkdir(exist_ok=True)
    for path in exported.glob("*.onnx"):
        where = {"location": f"{path.name}_data", "size_threshold": 0}
        onnx.save(onnx.load(path), folder / to / path.name, save_as_external_data=has_data, **where)
    return folder


@pytest.mark.parametrize("has_data", [False, True])
@pytest.mark.parametrize("to", [".", "onnx"], ids=["optimum", "transformers.js"])
def test_folders_of_other_libraries_have_the_same_weights(to, has_data, exported, saved, tmp_path):
    """Those of the hub's cache consist of links."""
    folder, linked = copied(exported, tmp_path / "model", to, has_data=has_data), tmp_path / "linked"
    (linked / to).mkdir(parents=True)
    for path in filter(Path.is_file, folder.rglob("*")):
        (linked / path.relative_to(folder)).symlink_to(path)
    check_equal(linked, saved, rtol=0)
    assert load_checkpoint(str(linked)).weights_digest != load_checkpoint(str(saved)).weights_digest


def test_missing_and_cut_off_data_is_found_before_it_is_read(exported, tmp_path):
    with_data = copied(exported, tmp_path / "model")
    data = with_data / "decoder_model.onnx_data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"decoder_model\.onnx_data is too short for its weights"):
        load_checkpoint(str(with_data))
    data.unlink()
    with pytest.raises(CheckpointError, match=r"has no file .decoder_model\.onnx_data. of weights"):
        load_checkpoint(str(with_data))


def test_a_merged_decoder_in_half_precision(exported, saved, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(exported, folder, ignore=shutil.ignore_patterns("*.onnx"))
    (folder / "onnx").mkdir()
    for path in exported.glob("*.onnx"):
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                half = numpy_helper.to_array(tensor).astype(np.float16)
                tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
        name = path.stem
        if name == "decoder_model":  # a branch of an If, with names that end as optimum merges them
            name, branch = "decoder_model_merged", model.graph
            renamed = {tensor.name: f"{tensor.name}_merged_0" for tensor in branch.initializer}
            for tensor in branch.initializer:
                tensor.name = renamed[tensor.name]
            for node in branch.node:
                node.input[:] = [renamed.get(each, each) for each in node.input]
            weights = list(branch.initializer)
            del branch.initializer[:]
            choice = onnx.helper.make_node("If", ["use_cache_branch"], [], then_branch=branch)
            model = onnx.helper.make_model(onnx.helper.make_graph([choice], "merged", [], [], weights))
        onnx.save(model, folder / "onnx" / f"{name}_fp16.onnx")
    check_equal(folder, saved, rtol=1e-3, atol=1e-6)


def test_quantised_files_are_refused(exported, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    path = folder / "encoder_model.onnx"
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(np.zeros(tensor.dims, np.int8), tensor.name))
    onnx.save(model, path)
    with pytest.raises(CheckpointError, match="no matrices of float32 or float16: fetch the files"):
        load_checkpoint(str(folder))
    (folder / "decoder_model.onnx").unlink()
    with pytest.raises(CheckpointError, match="ONNX files of encoder and decoder"):
        load_checkpoint(str(folder))
