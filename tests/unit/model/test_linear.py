"""Packed layers equal plain ones, int8 layers nearly, whatever the other rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from specwhisper.model import compat
from specwhisper.model.kernels import linear
from specwhisper.model.kernels.linear import Int8Embedding, Int8Linear, PackedLinear, pack_linears

needs_vnni = pytest.mark.skipif(
    not compat.HAS_INT8_SUMS, reason="sums of int8 products overflow on this processor"
)
LARGE, SMALL = (768, 704), (96, 64)  # outputs x inputs, above and below the size from which layers are packed


def layer(shape: tuple[int, int], *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(shape[1], shape[0], bias=bias).requires_grad_(False)


def rows(num_rows: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_rows", [1, 5, 40])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@torch.inference_mode()
def test_a_packed_layer_equals_the_plain_one(num_rows, bias, dtype, tolerance):
    plain = layer(LARGE, bias=bias).to(dtype)
    hidden = rows(num_rows, LARGE[1]).to(dtype)
    torch.testing.assert_close(PackedLinear(plain)(hidden), plain(hidden), rtol=tolerance, atol=tolerance)


@needs_vnni
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_an_int8_layer_nearly_equals_the_plain_one(shape, bias):
    plain, hidden = layer(shape, bias=bias), rows(7, shape[1])
    ours, exact = Int8Linear(plain)(hidden), plain(hidden)
    assert (ours - exact).norm() < 0.01 * exact.norm()
    batched = hidden.expand(2, 7, -1)
    assert torch.equal(Int8Linear(plain)(batched), ours.expand(2, 7, -1))


@needs_vnni
@pytest.mark.parametrize("is_packed", [True, False])
@torch.inference_mode()
def test_both_integer_kernels_agree(monkeypatch, is_packed):
    plain, hidden = layer(LARGE), rows(3, LARGE[1])
    expected = Int8Linear(plain)(hidden)
    monkeypatch.setattr(linear, "MIN_PACKED_WEIGHTS", 0 if is_packed else 2**40)
    ours = Int8Linear(plain)
    assert ours.is_packed == is_packed
    torch.testing.assert_close(ours(hidden), expected, rtol=0, atol=2e-3 * float(expected.abs().max()))


@needs_vnni
@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from([LARGE, SMALL]),
    num_rows=st.integers(1, 40),
    scales=st.lists(st.sampled_from([0.0, 1e-6, 1.0, 1e4]), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_a_row_does_not_depend_on_other_rows(shape, num_rows, scales, seed):
    int8 = int8_layer(shape)
    hidden = rows(num_rows, shape[1], seed)
    for i in range(num_rows):
        hidden[i] *= scales[i % len(scales)]
    with torch.inference_mode():
        together = int8(hidden)
        assert all(torch.equal(int8(hidden[i : i + 1])[0], together[i]) for i in range(num_rows))


@pytest.mark.skipif(not compat.HAS_BFLOAT16, reason="oneDNN has no bfloat16 here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(768, 768), (3072, 768), (768, 3072), (1280, 5120), (4000, 1280)])
@torch.inference_mode()
def test_a_packed_row_has_the_same_bits_in_any_batch(shape, dtype):
    packed = PackedLinear(layer(shape).to(dtype))
    hidden = rows(256, shape[1]).to(dtype)
    one_by_one = torch.cat([packed(row[None]) for row in hidden])
    for num_rows in (2, 3, 5, 8, 13, 16, 17, 40, 48, 64, 100, 192, 256):
        for first in (0, 256 - num_rows):
            part = slice(first, first + num_rows)
            assert torch.equal(packed(hidden[part]), one_by_one[part])


@needs_vnni
def test_the_digest_of_packed_layers_depends_on_their_weights(monkeypatch):
    monkeypatch.setattr(linear, "MIN_PACKED_WEIGHTS", 0)
    plain = layer(LARGE)
    one, same = Int8Linear(plain).state_dict(), Int8Linear(plain).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    plain.weight[3, 5] += plain.weight.abs().max() / 2
    other = Int8Linear(plain).state_dict()
    assert not torch.equal(one["digest"], other["digest"])


MADE: dict[tuple[int, int], Int8Linear] = {}


def int8_layer(shape: tuple[int, int]) -> Int8Linear:
    return MADE.setdefault(shape, Int8Linear(layer(shape)))


@torch.inference_mode()
def test_an_int8_embedding_nearly_equals_the_plain_one():
    plain = nn.Embedding(50, 16).requires_grad_(False)
    plain.weight[7] = 0
    ids = torch.tensor([3, 7, 3, 49])
    ours = Int8Embedding(plain)(ids)
    torch.testing.assert_close(ours, plain(ids), rtol=0, atol=float(plain.weight.abs().max()) / 127)
    assert not ours[1].any()


def test_only_large_layers_are_packed_unless_all_are_int8():
    module = nn.ModuleDict({"large": layer(LARGE), "small": layer(SMALL), "left": layer(LARGE)})
    pack_linears(module, is_int8=False, leave=("left",))
    kinds = {name: type(child) for name, child in module.items()}
    assert kinds["small"] is kinds["left"] is nn.Linear
    assert kinds["large"] is (PackedLinear if compat.HAS_ONEDNN else nn.Linear)
    nested = nn.Sequential(nn.Sequential(layer(LARGE)), layer(SMALL))
    pack_linears(nested, is_int8=True, leave=("0",))
    assert [type(nested[0][0]), type(nested[1])] == [Int8Linear, Int8Linear]
    halves = nn.ModuleDict({"fp16": layer(LARGE).half()})
    pack_linears(halves, is_int8=False)
    assert type(halves["fp16"]) is nn.Linear
