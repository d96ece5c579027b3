"""Weights are read as transformers and safetensors read them, each when it is asked for."""

import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import WhisperForConditionalGeneration

from experiments.common.models.checkpoints import build_checkpoint
from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.weights import (
    CACHE_LINE,
    EMBEDDING,
    PROJECTION,
    Weights,
    weights_in_files,
)
from specwhisper.model.pytorch.placement import read_tensor
from tests.unit.model.checkpoints.folders import SHAPE, WEIGHTS, rewrite_weights

MODEL, _ = build_checkpoint(SHAPE)
TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def written(path: Path, **tensors: torch.Tensor) -> Weights:
    save_file(tensors, path)
    return weights_in_files([path])


@pytest.mark.parametrize("type_", TYPES.values(), ids=list(TYPES))
def test_numbers_of_every_type_become_float32(type_: torch.dtype, tmp_path: Path):
    """Infinities, NaN and numbers too small for float16 are among them."""
    numbers = torch.tensor([[0.1, -2.5, 3e-8], [torch.inf, torch.nan, -0.0]]).to(type_)
    numbers = torch.cat([numbers, torch.randn(7, 3).to(type_)])
    read = written(tmp_path / "weights", numbers=numbers)["numbers"]
    assert (read.dtype, read.shape) == (np.float32, (9, 3))
    np.testing.assert_array_equal(read.view(np.uint32), numbers.float().numpy().view(np.uint32))


@pytest.mark.parametrize(
    ("stored", "computed"), [("float32", "bfloat16"), ("float16", "float32"), ("bfloat16", "float16")]
)
def test_tensors_are_those_of_transformers_in_any_precision(stored: str, computed: str, folder: Path):
    rewrite_weights(folder, lambda name, weight: weight.to(getattr(torch, stored)))
    theirs = WhisperForConditionalGeneration.from_pretrained(folder, dtype=getattr(torch, computed))
    checkpoint = load_checkpoint(str(folder), dtype=computed)
    expected = theirs.state_dict()
    assert list(checkpoint.weights) and set(checkpoint.weights) == set(expected)
    assert all(torch.equal(read_tensor(checkpoint, name), expected[name]) for name in expected)


def test_arrays_begin_at_cache_lines_and_may_be_changed(tmp_path: Path):
    weights = written(tmp_path / "weights", a=torch.ones(3), b=torch.ones(5), c=torch.ones(7))
    for array in weights.values():
        assert array.ctypes.data % CACHE_LINE == 0
        array[:] = 2
    assert weights["a"].tolist() == [1, 1, 1]  # read anew


def test_weights_are_those_that_were_opened_until_they_are_closed(tmp_path: Path):
    path = tmp_path / "weights"
    weights = written(path, a=torch.ones(3))
    path.unlink()
    written(path, a=torch.zeros(3))
    assert weights["a"].tolist() == [1, 1, 1]
    weights.close()
    assert list(weights) == []
    weights = written(path, a=torch.ones(3_000))
    path.write_bytes(path.read_bytes()[:1_000])
    with pytest.raises(CheckpointError, match="weights was cut off while it was read: fetch or"):
        weights["a"]


def header(**entries: object) -> bytes:
    content = json.dumps(entries).encode()
    return struct.pack("<Q", len(content)) + content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"\xff\xff",
        header(a={"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}) + bytes(7),
        header(a={"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]}) + bytes(8),
        header(a={"dtype": "F32", "shape": [2]}) + bytes(8),
        header(a=3),
    ],
)
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path):
    (tmp_path / "weights").write_bytes(content)
    with pytest.raises(ValueError, match="weights is cut off, or no safetensors file"):
        weights_in_files([tmp_path / "weights"])


def test_numbers_of_another_type_are_refused_when_they_are_needed(tmp_path: Path):
    weights = written(tmp_path / "weights", ids=torch.ones(3, dtype=torch.int64), a=torch.ones(1))
    assert weights["a"] == 1
    with pytest.raises(CheckpointError, match="has weights of type I64: save it again as float32, float16"):
        weights["ids"]


@pytest.mark.parametrize("change", ["base model", "tied", "projection", "untied"])
def test_every_form_loads_as_transformers_loads_it(change: str, folder: Path):
    if change == "base model":
        rewrite_weights(folder, lambda name, weight: weight, rename=lambda name: name.removeprefix("model."))
    elif change == "projection":  # stands for the embedding
        rewrite_weights(
            folder,
            lambda name, weight: weight,
            rename=lambda name: PROJECTION if name == EMBEDDING else name,
            extra={"spare": torch.zeros(1)},
        )
    elif change == "untied":
        rewrite_weights(folder, lambda name, weight: weight, extra={PROJECTION: MODEL.proj_out.weight + 1})
    theirs = WhisperForConditionalGeneration.from_pretrained(folder).state_dict()
    ours = load_checkpoint(str(folder)).weights
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name].numpy()) for name in theirs)
    assert ours.is_same(EMBEDDING, PROJECTION) == (change != "untied")


def test_one_array_at_a_time_is_in_memory(tmp_path: Path):
    """Reading all of 64 MB takes the memory of one array of 4 MB, and its conversion."""
    tensors = {str(i): torch.ones(1024, 1024, dtype=torch.float16) for i in range(16)}
    weights = written(tmp_path / WEIGHTS, **tensors)
    tracemalloc.start()
    total = sum(float(array[0, 0]) for array in weights.values())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 16
    assert peak < 16e6
