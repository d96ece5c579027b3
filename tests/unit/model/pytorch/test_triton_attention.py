"""Attention over slots equals torch's, on a GPU and in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.model.pytorch.kernels import triton_attention
from specwhisper.model.pytorch.kernels.triton_attention import (
    quantise_cache,
    slot_attention,
    slot_attention_reference,
    supports,
    write_slots,
)
from tests.slot_writing import write_slots_reference

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not IS_INTERPRETED else "cpu"
HAS_GPU = supports(torch.empty(16, device=DEVICE))
HEADS, HEAD_SIZE, POSITIONS, NUM_SLOTS = 2, 16, 75, 5  # 75: no whole number of blocks
QUANTISED = [torch.int8, torch.float8_e4m3fn]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
NOT_INSTALLED = "Triton is not installed: torch's CPU builds come without it"


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def random_cache(positions: int = POSITIONS, **kwargs: Any) -> torch.Tensor:
    return random(2, NUM_SLOTS, HEADS, positions, HEAD_SIZE, **kwargs)


def fused(rows: int, width: int, **kwargs: Any) -> torch.Tensor:
    """Return a projection's output: rows x width x 3 x heads x head_size."""
    return random(rows, width, 3 * HEADS * HEAD_SIZE, seed=1, **kwargs).view(rows, width, 3, HEADS, HEAD_SIZE)


def exactly(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return slot_attention_reference(query.double(), *args, **kwargs).float()


class TestKernels:
    """Run with a GPU or by :func:`test_kernels_in_the_interpreter`."""

    __test__ = IS_INTERPRETED or HAS_GPU

    @pytest.mark.parametrize("num_splits", [1, 3])
    @pytest.mark.parametrize("width", [1, 2, 5, 16, 32, 40])
    @pytest.mark.parametrize("rows", [1, 3])
    def test_cross_attention(self, rows: int, width: int, num_splits: int):
        query, cache, slots = fused(rows, width)[:, :, 0], random_cache(), integers(4, 0, 2)[:rows]
        attended = slot_attention(query, cache, slots, num_splits=num_splits)
        torch.testing.assert_close(attended, exactly(query, cache, slots), **CLOSE)

    @pytest.mark.parametrize("num_splits", [1, 3])
    @pytest.mark.parametrize("width", [1, 2, 5, 16, 32, 40])
    @pytest.mark.parametrize("rows", [1, 3])
    def test_self_attention(self, rows: int, width: int, num_splits: int):
        """Try slots that end full, that start empty, and others."""
        query, cache, slots = fused(rows, width)[:, :, 0], random_cache(), integers(1, 3, 0)[:rows]
        starts = integers(POSITIONS - width, 0, 7)[:rows]
        expected = exactly(query, cache, slots, starts)
        for slot, start in zip(slots, starts, strict=True):
            cache[:, slot, :, start + width :] = torch.nan
        attended = slot_attention(query, cache, slots, starts, num_splits=num_splits)
        torch.testing.assert_close(attended, expected, **CLOSE)

    def test_rows_may_share_a_slot(self):
        query, cache, slots = fused(3, 2)[:, :, 0], random_cache(), integers(2, 0, 2).long()
        for starts in (None, integers(9, 40, 3).long()):
            expected = exactly(query, cache, slots, starts)
            torch.testing.assert_close(slot_attention(query, cache, slots, starts), expected, **CLOSE)

    def test_a_padding_row_of_a_full_slot_is_finite(self):
        attended = slot_attention(fused(1, 5)[:, :, 0], random_cache(), integers(0), integers(POSITIONS))
        assert attended.isfinite().all()

    @pytest.mark.parametrize("is_quantised", [False, True])
    def test_a_cache_may_be_a_view_of_a_larger_one(self, is_quantised: bool):
        layers, scales = random(2, 3, NUM_SLOTS, HEADS, POSITIONS, HEAD_SIZE), None
        if is_quantised:
            layers, scales = quantise_cache(layers)
            scales = scales[:, 1]
        query, cache, slots = fused(2, 5)[:, :, 0], layers[:, 1], integers(3, 1)
        attended = slot_attention(query, cache, slots, scales=scales, num_splits=2)
        expected = exactly(query, cache, slots, scales=scales)
        torch.testing.assert_close(attended, expected, **CLOSE)

    @pytest.mark.parametrize("starts", [None, (0, 60)])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_reduced_precision(self, dtype: torch.dtype, starts: tuple[int, int] | None):
        if IS_INTERPRETED and dtype == torch.bfloat16:
            pytest.skip("Triton's interpreter multiplies bfloat16 as if they were integers")
        query, cache, slots = fused(2, 5, dtype=dtype)[:, :, 0], random_cache(dtype=dtype), integers(3, 1)
        starts = None if starts is None else integers(*starts)
        expected = exactly(query, cache, slots, starts)
        for num_splits in (1, 2):
            attended = slot_attention(query, cache, slots, starts, num_splits=num_splits)
            assert attended.dtype == dtype
            error = 4 * torch.finfo(dtype).eps
            torch.testing.assert_close(attended.float(), expected, rtol=error, atol=error)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    @pytest.mark.parametrize("quantised", QUANTISED)
    def test_quantised_caches(self, quantised: torch.dtype, dtype: torch.dtype):
        cache, scales = quantise_cache(random_cache(150) * 3, quantised)  # of 128 positions is a block
        if HAS_GPU and not supports(cache):
            pytest.skip("a GPU of compute capability 8.9 has 8-bit floating-point numbers")
        query, slots = fused(2, 5, dtype=dtype)[:, :, 0], integers(3, 1)
        error = CLOSE if dtype == torch.float32 else {"rtol": 4e-3, "atol": 4e-3}
        for starts, num_splits in ((None, 1), (None, 2), (integers(20, 145), 2)):
            attended = slot_attention(query, cache, slots, starts, scales=scales, num_splits=num_splits)
            expected = exactly(query, cache, slots, starts, scales=scales)
            torch.testing.assert_close(attended.float(), expected, **error)

    @pytest.mark.parametrize(("heads", "num_splits"), [(1, 4), (200, 2), (300, 1)])
    def test_positions_are_split_until_the_gpu_is_full(
        self, monkeypatch: pytest.MonkeyPatch, heads: int, num_splits: int
    ):
        """An H200 has 132 processors; splits of fewer than 128 positions gain nothing."""
        launches = []

        class Launch:
            def __getitem__(self, grid: tuple[int, ...]) -> Any:
                launches.append(grid)
                return lambda *args, **kwargs: None

        monkeypatch.setattr(triton_attention, "_num_processors", lambda device: 132)
        monkeypatch.setattr(triton_attention, "_attend", Launch())
        monkeypatch.setattr(triton_attention, "_combine", Launch())
        cache = torch.zeros(2, 1, heads, 600, HEAD_SIZE, device=DEVICE)
        slot_attention(random(1, 4, heads, HEAD_SIZE), cache, integers(0))
        assert launches[0] == (num_splits, heads, 1)
        assert len(launches) == (2 if num_splits > 1 else 1)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_only_the_tokens_of_a_row_are_written(self, dtype: torch.dtype):
        key_value, cache = fused(4, 5, dtype=dtype)[:, :, 1:], random_cache(dtype=dtype)
        slots, starts, lengths = integers(4, 0, 2, 0), integers(3, 0, 70, 0), integers(5, 1, 5, 0)
        expected = cache.clone()
        for row, (slot, start, length) in enumerate(zip(slots, starts, lengths, strict=True)):
            for token in range(length):
                expected[:, slot, :, start + token] = key_value[row, token]
        write_slots(key_value, cache, slots, starts, lengths)
        assert torch.equal(cache, expected)

    def test_nothing_is_written_after_a_slots_last_position(self):
        whole = random_cache(POSITIONS + 8)
        key_value, cache, before = fused(2, 5)[:, :, 1:], whole[:, :, :, :POSITIONS], whole.clone()
        write_slots(key_value, cache, integers(1, 4), integers(POSITIONS - 2, POSITIONS), integers(5, 5))
        before[:, 1, :, POSITIONS - 2 : POSITIONS] = key_value[0, :2].permute(1, 2, 0, 3)
        assert torch.equal(whole, before)

    @settings(max_examples=30)
    @given(st.data())
    def test_any_slots(self, data: st.DataObject):
        rows, width = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 18))
        positions = data.draw(st.integers(width, 80))
        slots = integers(*data.draw(st.permutations(range(NUM_SLOTS)))[:rows])
        starts = integers(*(data.draw(st.integers(0, positions - width)) for _ in range(rows)))
        lengths = integers(*(data.draw(st.integers(0, width)) for _ in range(rows)))
        query, key_value = fused(rows, width).split([1, 2], dim=2)
        cache = random_cache(positions)
        expected = cache.clone()
        write_slots(key_value, cache, slots, starts, lengths)
        write_slots_reference(key_value, expected, slots, starts, lengths)
        assert torch.equal(cache, expected)
        for seen in (None, starts):
            num_splits = data.draw(st.sampled_from([None, 1, 2, 3]))
            attended = slot_attention(query[:, :, 0], cache, slots, seen, num_splits=num_splits)
            expected = exactly(query[:, :, 0], cache, slots, seen)
            torch.testing.assert_close(attended, expected, **CLOSE)

    @pytest.mark.skipif(not HAS_GPU, reason="CUDA graphs need a GPU")
    def test_a_graph_serves_other_slots_and_lengths(self):
        qkv, cache = fused(3, 5), random_cache()
        slots, starts, lengths = integers(0, 1, 2), integers(0, 0, 0), integers(5, 5, 5)

        def forward() -> torch.Tensor:
            write_slots(qkv[:, :, 1:], cache, slots, starts, lengths)
            return slot_attention(qkv[:, :, 0], cache, slots, starts, num_splits=2)

        forward()  # kernels are compiled when first launched, which a graph does not allow
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            attended = forward()
        slots.copy_(integers(4, 2, 2))
        starts.copy_(integers(60, 0, 9))
        lengths.copy_(integers(5, 2, 0))
        before = cache.clone()
        graph.replay()
        write_slots_reference(qkv[:, :, 1:], before, slots, starts, lengths)
        assert torch.equal(cache, before)
        expected = exactly(qkv[:, :, 0], cache, slots, starts)
        torch.testing.assert_close(attended, expected, **CLOSE)


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
        timeout=100,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.skipif(IS_INTERPRETED, reason="what is interpreted is not compiled")
@pytest.mark.parametrize(
    ("dtype", "quantised", "width", "is_causal"),
    [
        (torch.float16, None, 8, False),
        (torch.bfloat16, None, 1, True),
        (torch.float16, torch.int8, 32, False),
        (torch.bfloat16, torch.float8_e4m3fn, 8, False),
        (torch.float32, None, 8, True),
    ],
)
def test_kernels_compile_for_an_h200(
    monkeypatch: pytest.MonkeyPatch, tmp_path, dtype, quantised, width, is_causal
):
    """The interpreter accepts more than the compiler, which needs no GPU."""
    triton = pytest.importorskip("triton", reason=NOT_INSTALLED)
    compiler = pytest.importorskip("triton.backends.compiler")

    class Driver:
        def get_current_device(self) -> int:
            return -1

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> Any:
            return compiler.GPUTarget("cuda", 90, 32)

    class Compiled:
        def __init__(self, name: str) -> None:
            self.kernel, self.code = getattr(triton_attention, name), None
            monkeypatch.setattr(triton_attention, name, self)

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return partial(self.launch, grid)

        def launch(self, grid: tuple[int, ...], *args: Any, **kwargs: Any) -> None:
            self.code = self.kernel.warmup(*args, grid=grid, **kwargs).asm["cubin"]

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver())
    kernels = [Compiled(name) for name in ("_attend", "_combine", "_write")]
    qkv = torch.zeros(2, width, 3, 20, 64, dtype=dtype)
    cache, scales = torch.zeros(2, 3, 20, 448, 64, dtype=dtype), None
    slots = torch.zeros(2, dtype=torch.int32)
    write_slots(qkv[:, :, 1:], cache, slots, slots, slots)
    if quantised is not None:
        cache, scales = quantise_cache(cache, quantised)
    slot_attention(qkv[:, :, 0], cache, slots, slots if is_causal else None, scales=scales, num_splits=3)
    assert all(kernel.code for kernel in kernels)


def test_the_kernels_do_not_support_a_cpu():
    assert not supports(torch.zeros(2, 1, 1, 4, 64))


@pytest.mark.parametrize("starts", [None, (0, 9)])
def test_the_reference_is_softmax_attention(starts: tuple[int, int] | None):
    query, slots = fused(2, 3, dtype=torch.float64)[:, :, 0], (3, 1)
    cache = random_cache(12, dtype=torch.float64)
    given_starts = None if starts is None else integers(*starts)
    attended = slot_attention_reference(query, cache, integers(*slots), given_starts)
    for row, slot in enumerate(slots):
        for token in range(3):
            num_seen = 12 if starts is None else starts[row] + token + 1
            for head in range(HEADS):
                keys, values = cache[:, slot, head, :num_seen]
                weights = (keys @ query[row, token, head] / HEAD_SIZE**0.5).softmax(dim=0)
                expected = weights @ values
                found = attended[row, token, head * HEAD_SIZE : (head + 1) * HEAD_SIZE]
                torch.testing.assert_close(found, expected, **CLOSE)


def test_the_reference_writes_tokens_and_no_padding():
    key_value, cache = fused(3, 2)[:, :, 1:], random_cache(4)
    expected = cache.clone()
    expected[:, 4, :, 1:3] = key_value[0].permute(1, 2, 0, 3)
    expected[:, 0, :, 3] = key_value[1, 0]
    write_slots_reference(key_value, cache, integers(4, 0, 0), integers(1, 3, 0), integers(2, 2, 0))
    assert torch.equal(cache, expected)


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
    query, cache, slots = fused(2, 5)[:, :, 0], random_cache(), integers(3, 1)
    values, scales = quantise_cache(cache, dtype)
    expected = slot_attention_reference(query, cache, slots)
    attended = slot_attention_reference(query, values, slots, scales=scales)
    assert (attended - expected).abs().max() < error
