"""Private parts of torch, transformers and accelerate work as expected."""

from __future__ import annotations

import accelerate
import pytest
import torch
import transformers
from torch import nn

from experiments.common.models.checkpoints import Shape, build_tokenizer
from specwhisper.model import compat

TOKENIZER = build_tokenizer(Shape())


@pytest.mark.parametrize(
    ("library", "release"),
    [
        (torch, compat.TORCH),
        (transformers, compat.TRANSFORMERS),
        (accelerate, compat.ACCELERATE),
    ],
)
def test_libraries_have_the_tested_releases(library, release):
    """Run this file with the new release, then name it in ``compat.py``."""
    assert library.__version__.rpartition(".")[0] == release


@pytest.mark.skipif(not compat.HAS_ONEDNN, reason="oneDNN is not available")
def test_packed_float_weights_multiply_as_unpacked_ones():
    linear, rows = nn.Linear(64, 32).requires_grad_(False), torch.randn(3, 64)
    packed = compat.pack_weights(linear.weight.detach(), 32)
    torch.testing.assert_close(compat.multiply_packed(rows, packed, linear.bias), linear(rows))


@pytest.mark.skipif(not compat.HAS_INT8_SUMS, reason="this processor's sums of bytes overflow")
def test_int8_weights_multiply_exactly():
    weight = torch.randint(-127, 128, (32, 64), dtype=torch.int8)
    rows = torch.randint(-127, 128, (3, 64), dtype=torch.int8)
    expected = rows.int() @ weight.int().T
    assert torch.equal(compat.multiply_int8(rows, weight.T), expected)
    if compat.HAS_ONEDNN:
        packed = compat.pack_int8_weights(weight)
        unsigned = (rows.int() + 128).to(torch.uint8)
        scale, zero_points = torch.ones(32), torch.zeros(32, dtype=torch.int64)
        found = compat.multiply_packed_int8(unsigned, packed, scale, zero_points)
        assert torch.equal(found, expected.float())


def test_chunks_are_joined():
    chunks = [
        (TOKENIZER(text, add_special_tokens=False).input_ids, (2.0, 0.0, 0.0)) for text in (" one", " two")
    ]
    text, parts = compat.join_chunks(TOKENIZER, chunks, timestamps=False, time_step_s=0.02)
    assert (text, parts) == (" one two", [])


def test_the_device_of_an_offloaded_layer_is_that_of_its_hook():
    layer = nn.Linear(2, 2)
    assert compat.execution_device(layer) == torch.device("cpu")
    accelerate.hooks.add_hook_to_module(layer, accelerate.hooks.AlignDevicesHook(execution_device="meta"))
    assert compat.execution_device(layer) == torch.device("meta")
