"""A GPU's kernels equal torch, on a GPU and in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from specwhisper.model.pytorch.kernels import attention, choice
from specwhisper.model.pytorch.kernels.attention import (
    CrossScratch,
    attend_cross,
    attend_self,
    supports_cache,
)
from specwhisper.model.pytorch.kernels.buckets import BLOCKS, bucket_for
from specwhisper.model.pytorch.kernels.choice import Rules, choose_tokens
from specwhisper.model.pytorch.kernels.layer_cache import BatchRow
from specwhisper.model.pytorch.kernels.linear import linear_add, norm_linear
from specwhisper.model.pytorch.kernels.packed_inputs import Following, PackedInputs
from specwhisper.model.pytorch.kernels.quantised import quantise_cache

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not IS_INTERPRETED else "cpu")
HAS_GPU = supports_cache(torch.empty(16, device=DEVICE))
HEADS, HEAD_SIZE, POSITIONS, NUM_SLOTS = 2, 16, 75, 5  # 75: no whole number of blocks
NUM_IDS, TIMESTAMP_BEGIN, NUM_STATES, FIRST_TIMED = 5_000, 4_900, 5, 2
QUANTISED = [torch.int8, torch.float8_e4m3fn]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
# The interpreter multiplies with NumPy, whose sums depend on a row's place.
SAME = {"rtol": 0.0, "atol": 1e-6 if IS_INTERPRETED else 0.0}
NOT_INSTALLED = "Triton is not installed: torch's CPU builds come without it"

widths = st.lists(st.integers(1, 40), min_size=1, max_size=NUM_SLOTS - 1)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def random_cache(positions: int = POSITIONS, **kwargs: Any) -> Tensor:
    return random(2, NUM_SLOTS, HEADS, positions, HEAD_SIZE, **kwargs)


def filled(rows: list[BatchRow], following: list[Following] | None = None) -> PackedInputs:
    """Return inputs of rows; the last slot is for padding."""
    bucket = bucket_for([len(row.tokens) for row in rows])
    inputs = PackedInputs(bucket, DEVICE, spare_slot=NUM_SLOTS - 1)
    inputs.fill(rows, following or [Following()] * len(rows))
    return inputs


def rows_of(*sizes: tuple[int, int]) -> list[BatchRow]:
    """Return rows of (start, width) in descending slots."""
    return [BatchRow(NUM_SLOTS - 2 - i, start, [7] * width) for i, (start, width) in enumerate(sizes)]


def starting_anywhere(of_rows: list[int], seed: int) -> list[tuple[int, int]]:
    """Return a start that fits for each width, and the width."""
    return [(seed * (i + 1) % (POSITIONS - width + 1), width) for i, width in enumerate(of_rows)]


def attend_exactly(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend from one token of one head: head_size, positions x head_size."""
    weights = (keys.double() @ query.double() / HEAD_SIZE**0.5).softmax(dim=0)
    return weights @ values.double()


def exactly(
    query: Tensor, cache: Tensor, rows: list[BatchRow], *, is_causal: bool, scales: Tensor | None = None
) -> Tensor:
    """Attend from every token in float64: tokens x (heads x head_size)."""
    full, attended, token = cache.double(), [], 0
    if scales is not None:
        full = full * scales[..., None].double()
    for slot, start, tokens in rows:
        for index in range(len(tokens)):
            seen = start + index + 1 if is_causal else cache.shape[3]
            key, value = full[:, slot, :, :seen].unbind()
            attended += [attend_exactly(query[token, head], key[head], value[head]) for head in range(HEADS)]
            token += 1
    return torch.stack(attended).view(token, HEADS * HEAD_SIZE).float()


def written(qkv: Tensor, cache: Tensor, rows: list[BatchRow]) -> Tensor:
    """Return the cache with the rows' keys and values."""
    expected, token = cache.clone(), 0
    for slot, start, tokens in rows:
        for index in range(len(tokens)):
            expected[:, slot, :, start + index] = qkv[token, 1:]
            token += 1
    return expected


def check_self(rows: list[BatchRow], dtype: torch.dtype = torch.float32, **close: float) -> None:
    inputs, num_tokens = filled(rows), sum(len(row.tokens) for row in rows)
    qkv = random(len(inputs.ids), 3, HEADS, HEAD_SIZE, seed=1, dtype=dtype)
    cache = random_cache(dtype=dtype)
    expected = written(qkv, cache, rows)
    for slot, start, tokens in rows:  # what follows a slot's tokens is left from before
        cache[:, slot, :, start + len(tokens) :] = expected[:, slot, :, start + len(tokens) :] = torch.nan
    attended = attend_self(qkv, cache, inputs)
    assert attended.dtype == dtype
    torch.testing.assert_close(cache[:, :-1], expected[:, :-1], rtol=0, atol=0, equal_nan=True)
    exact = exactly(qkv[:, 0], expected, rows, is_causal=True)
    torch.testing.assert_close(attended[:num_tokens].float(), exact, **(close or CLOSE))


def check_cross(
    rows: list[BatchRow],
    dtype: torch.dtype = torch.float32,
    quantised: torch.dtype | None = None,
    positions: int = 450,  # three splits
    **close: float,
) -> None:
    inputs, num_tokens = filled(rows), sum(len(row.tokens) for row in rows)
    query = random(len(inputs.ids), HEADS, HEAD_SIZE, seed=1, dtype=dtype)
    cache, scales = random_cache(positions), None
    if quantised is not None:
        cache, scales = quantise_cache(cache * 3, quantised)
    else:
        cache = cache.to(dtype)
    scratch = CrossScratch(BLOCKS[-1], HEADS, positions, HEAD_SIZE, DEVICE)
    exact = exactly(query, cache, rows, is_causal=False, scales=scales)
    for _ in range(2):  # the first pass leaves its parts, and no arrivals
        attended = attend_cross(query, cache, scales, inputs, scratch)
        torch.testing.assert_close(attended[:num_tokens].float(), exact, **(close or CLOSE))
        assert not scratch.arrivals.any()


class TestKernels:
    """Run with a GPU or by :func:`test_kernels_in_the_interpreter`."""

    __test__ = IS_INTERPRETED or HAS_GPU

    @pytest.fixture(autouse=True)
    def _use_kernels(self, monkeypatch: pytest.MonkeyPatch):
        if not HAS_GPU:
            monkeypatch.setattr(attention, "supports_cache", lambda cache: True)
            monkeypatch.setattr(choice, "supports", lambda logits: True)

    @pytest.mark.parametrize("width", [1, 2, 5, 16, 17, 40])
    def test_attention(self, width: int):
        """Try slots that end full, that start empty, and others."""
        rows = rows_of((POSITIONS - width, width), (0, width), (7, 1))
        check_self(rows)
        check_cross(rows)

    @settings(max_examples=15)
    @given(widths, st.integers(0, 2**16), st.sampled_from([150, 193, 450]))
    def test_any_rows(self, of_rows: list[int], seed: int, positions: int):
        rows = rows_of(
            *((seed * (i + 1) % (POSITIONS - width + 1), width) for i, width in enumerate(of_rows))
        )
        check_self(rows)
        check_cross(rows, positions=positions)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_attention_in_reduced_precision(self, dtype: torch.dtype):
        if IS_INTERPRETED and dtype == torch.bfloat16:
            pytest.skip("Triton's interpreter multiplies bfloat16 as if they were integers")
        error = 4 * torch.finfo(dtype).eps
        check_self(rows_of((3, 5), (60, 5)), dtype, rtol=error, atol=error)
        check_cross(rows_of((3, 5), (60, 5)), dtype, rtol=error, atol=error)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    @pytest.mark.parametrize("quantised", QUANTISED)
    def test_attention_to_quantised_windows(self, quantised: torch.dtype, dtype: torch.dtype):
        if HAS_GPU and not supports_cache(torch.empty(16, dtype=quantised, device=DEVICE)):
            pytest.skip("a GPU of compute capability 8.9 has 8-bit floating-point numbers")
        error = CLOSE if dtype == torch.float32 else {"rtol": 4e-3, "atol": 4e-3}
        check_cross(rows_of((0, 5), (0, 3)), dtype, quantised, **error)

    def test_what_a_token_attends_to_does_not_depend_on_the_pass(self):
        """Append a text at once, and in parts beside others."""
        qkv, caches = random(16, 3, HEADS, HEAD_SIZE, seed=3), [random_cache(), random_cache()]
        whole = attend_self(qkv, caches[0], filled([BatchRow(2, 9, [7] * 16)]))
        parts = []
        for first, last in ((0, 1), (1, 6), (6, 16)):
            rows = [BatchRow(0, 3, [7] * 4), BatchRow(2, 9 + first, [7] * (last - first))]
            inputs = filled(rows)
            beside = random(len(inputs.ids), 3, HEADS, HEAD_SIZE, seed=first)
            beside[4 : 4 + last - first] = qkv[first:last]
            parts.append(attend_self(beside, caches[1], inputs)[4 : 4 + last - first])
        torch.testing.assert_close(torch.cat(parts), whole, **SAME)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    @pytest.mark.parametrize("num_tokens", [1, 16, 20, 70])
    @pytest.mark.parametrize(("num_inputs", "num_outputs"), [(64, 100), (192, 2_100), (700, 40)])
    def test_projections(self, num_inputs: int, num_outputs: int, num_tokens: int, dtype: torch.dtype):
        error = CLOSE if dtype == torch.float32 else {"rtol": 2e-3, "atol": 4e-3}
        norm, into = nn.LayerNorm(num_inputs), nn.Linear(num_inputs, num_outputs)
        back = nn.Linear(num_outputs, num_inputs)
        with torch.no_grad():
            norm.weight += 0.5
            norm.bias -= 0.25
        for module in (norm, into, back):
            module.to(DEVICE, dtype).requires_grad_(False)
        hidden = random(num_tokens, num_inputs, seed=4, dtype=dtype) * 3 + 1
        exact = nn.functional.layer_norm(
            hidden.double(), (num_inputs,), norm.weight.double(), norm.bias.double()
        )
        exact = exact @ into.weight.double().T + into.bias.double()
        for gelu in (False, True):
            made = norm_linear(hidden, norm, into, gelu=gelu, is_fused=True)
            expected = nn.functional.gelu(exact) if gelu else exact
            torch.testing.assert_close(made.double(), expected, **error)
        values = random(num_tokens, num_outputs, seed=5, dtype=dtype) / 10
        made = linear_add(values, back, hidden, is_fused=True)
        expected = hidden.double() + values.double() @ back.weight.double().T + back.bias.double()
        torch.testing.assert_close(made.double(), expected, **error)

    def test_a_projection_without_bias_in_another_type(self):
        norm, into = nn.LayerNorm(64), nn.Linear(64, 90, bias=False)
        for module in (norm, into):
            module.to(DEVICE, torch.float16).requires_grad_(False)
        hidden = random(3, 64, dtype=torch.float16)
        made = torch.empty(3, 90, device=DEVICE)
        norm_linear(hidden, norm, into, out=made, is_fused=True)
        torch.testing.assert_close(made, into(norm(hidden)).float(), rtol=2e-3, atol=2e-3)

    @pytest.mark.parametrize("block_tokens", [1, 16, 33])
    def test_a_projection_does_not_depend_on_the_other_tokens(self, block_tokens: int):
        norm, into = nn.LayerNorm(64).to(DEVICE), nn.Linear(64, 90).to(DEVICE)
        hidden = random(block_tokens, 64)
        together = norm_linear(hidden, norm, into, is_fused=True)
        alone = norm_linear(hidden[-1:], norm, into, is_fused=True)
        torch.testing.assert_close(together[-1:], alone, **SAME)

    @settings(max_examples=20)
    @given(st.integers(0, 2**16))
    def test_choices(self, seed: int):
        check_choices(seed)


def check_choices(seed: int) -> None:
    """Compare with torch's, in every state, with and without candidates."""
    generator = torch.Generator().manual_seed(seed)
    logits = random(32, NUM_IDS, seed=seed)
    logits[::3, TIMESTAMP_BEGIN:] += 4  # timestamps together are often likelier than any text token
    logits[5, 100:200] = logits[5].max() + 1  # equal ones
    logits[6, [100, 4_500]] = logits[6].max() + 1  # in different parts of the vocabulary
    is_forbidden = (torch.rand(NUM_STATES, NUM_IDS, generator=generator) < 0.1).to(DEVICE)
    states = torch.randint(NUM_STATES, (32,), generator=generator).tolist()
    times = torch.randint(110, (32, 2), generator=generator).tolist()  # some allow no timestamp at all
    tokens = torch.randint(NUM_IDS, (32,), generator=generator).tolist()
    allowed = [(state, *of_token) for state, of_token in zip(states, times, strict=True)]
    inputs = filled([BatchRow(0, 0, tokens)], [Following(allowed, seed % 32)])
    rules = Rules(is_forbidden, TIMESTAMP_BEGIN, FIRST_TIMED)
    expected = choice.choose_tokens_reference(logits, rules, inputs)
    with np.errstate(divide="ignore"):  # of no time allowed, the interpreter takes the logarithm of 0
        before, made = logits.clone(), choose_tokens(logits, rules, inputs)
    assert torch.equal(logits, before)
    assert torch.equal(made[:, 0], expected[:, 0])
    torch.testing.assert_close(made[:, 1:], expected[:, 1:], rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.skipif(IS_INTERPRETED, reason="they run here")
def test_kernels_in_the_interpreter():
    """Triton reads its mode when it is imported, so this runs another process."""
    # Before 3.7, the interpreter fails with numpy 2.4.
    pytest.importorskip("triton", minversion="3.7", reason=NOT_INSTALLED)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::{TestKernels.__name__}"],
        env=kept | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@settings(max_examples=20)
@given(widths, st.integers(0, 2**16))
def test_the_references_attend_exactly(of_rows: list[int], seed: int):
    rows = rows_of(*starting_anywhere(of_rows, seed))
    inputs, num_tokens = filled(rows), sum(of_rows)
    qkv, cache = random(len(inputs.ids), 3, HEADS, HEAD_SIZE, seed=1).cpu(), random_cache().cpu()
    expected = written(qkv, cache, rows)
    attended = attention.attend_self_reference(qkv, cache, inputs)
    assert torch.equal(cache[:, :-1], expected[:, :-1])
    exact = exactly(qkv[:, 0], expected, rows, is_causal=True)
    torch.testing.assert_close(attended[:num_tokens], exact, **CLOSE)
    attended = attention.attend_cross_reference(qkv[:, 0], cache, None, inputs)
    exact = exactly(qkv[:, 0], cache, rows, is_causal=False)
    torch.testing.assert_close(attended[:num_tokens], exact, **CLOSE)


def test_the_kernels_do_not_support_a_cpu():
    assert not supports_cache(torch.zeros(2, 1, 1, 4, 64))


@pytest.mark.parametrize("size", [1e-12, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("dtype", QUANTISED)
def test_the_quantisation_error_is_at_most_half_a_step(dtype: torch.dtype, size: float):
    exact = random_cache() * size
    exact[0, 0, 0, 0] = 0
    values, scales = quantise_cache(exact, dtype)
    assert (values.dtype, scales.dtype) == (dtype, torch.float16)
    assert scales.shape == exact.shape[:-1]
    step = scales[..., None].float()
    error = (values.float() * step - exact).abs()
    # int8 has equal steps; those of float8_e4m3fn are an eighth of the power of two below the number.
    half = step / 2 if dtype == torch.int8 else torch.maximum(exact.abs() / 16, step * 2**-10)
    assert (error <= half * 1.001).all()
    assert (values[0, 0, 0, 0].float() == 0).all()


@pytest.mark.parametrize(("dtype", "error"), [(torch.int8, 0.02), (torch.float8_e4m3fn, 0.06)])
def test_attention_over_a_quantised_cache_is_nearly_the_same(dtype: torch.dtype, error: float):
    rows = rows_of((0, 5), (0, 3))
    query, cache = random(8, HEADS, HEAD_SIZE).cpu(), random_cache().cpu()
    values, scales = quantise_cache(cache, dtype)
    expected = exactly(query, cache, rows, is_causal=False)
    attended = attention.attend_cross_reference(query, values, scales, filled(rows))
    assert (attended - expected).abs().max() < error
