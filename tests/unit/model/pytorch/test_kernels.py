"""A GPU's kernels, PyTorch's operations in their place, and the self-test that chooses between them."""

import logging
import os
import subprocess
import sys
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.model.pytorch import kernels, self_test
from specwhisper.model.pytorch.kernels import FusedOperations
from specwhisper.model.pytorch.operations import BatchRow, PlainOperations
from specwhisper.model.pytorch.packed import PackedInputs, bucket_for
from specwhisper.model.pytorch.self_test import Finding, compare, operations_for, table
from specwhisper_target_server.__main__ import serve
from specwhisper_target_server.config import TargetConfig

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not IS_INTERPRETED else "cpu")
HAS_GPU = kernels.reason_against(DEVICE, 16) is None and not IS_INTERPRETED
HEADS, HEAD_SIZE, POSITIONS, NUM_SLOTS = 2, 16, 75, 5  # 75: no whole number of blocks
SIZES = replace(
    build_checkpoint(Shape(d_model=HEADS * HEAD_SIZE, heads=HEADS, seed=1))[1].sizes,
    vocab_size=90,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_source_positions=450,  # three splits
    max_target_positions=POSITIONS,
)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
# The interpreter multiplies with NumPy, whose sums depend on a row's place.
SAME = {"rtol": 0.0, "atol": 1e-6 if IS_INTERPRETED else 0.0}
SHARED_KIB = {80: 163, 89: 99, 90: 227, 100: 227}  # most of a program, from the CUDA programming guide

widths = st.lists(st.integers(1, 40), min_size=1, max_size=NUM_SLOTS - 1)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def filled(rows: list[BatchRow]) -> PackedInputs:
    """Return inputs of rows; the last slot is for padding."""
    inputs = PackedInputs(bucket_for([len(row.tokens) for row in rows]), DEVICE, spare_slot=NUM_SLOTS - 1)
    inputs.fill(rows)
    return inputs


def rows_of(*sizes: tuple[int, int]) -> list[BatchRow]:
    """Return rows of (start, width) in descending slots."""
    return [BatchRow(NUM_SLOTS - 2 - i, start, [7] * width) for i, (start, width) in enumerate(sizes)]


def exactly(query: Tensor, cache: Tensor, rows: list[BatchRow], *, is_causal: bool) -> Tensor:
    """Attend from every token in float64: tokens x (heads x head_size)."""
    attended, token = [], 0
    for slot, start, tokens in rows:
        for index in range(len(tokens)):
            seen = start + index + 1 if is_causal else cache.shape[3]
            key, value = cache[:, slot, :, :seen].double().unbind()
            weights = (key @ query[token].double()[..., None] / HEAD_SIZE**0.5).softmax(dim=1)
            attended.append((weights * value).sum(dim=1).flatten())
            token += 1
    return torch.stack(attended).float()


def check_attention(
    operations: PlainOperations, rows: list[BatchRow], dtype: torch.dtype = torch.float32, **close: float
) -> None:
    places, num_tokens = filled(rows).places, sum(len(row.tokens) for row in rows)
    qkv = random(len(places.slots), 3, HEADS, HEAD_SIZE, seed=1, dtype=dtype)
    cache = random(2, NUM_SLOTS, HEADS, POSITIONS, HEAD_SIZE, dtype=dtype)
    expected, token = cache.clone(), 0
    for slot, start, tokens in rows:
        for index in range(len(tokens)):
            expected[:, slot, :, start + index] = qkv[token, 1:]
            token += 1
        if type(operations) is FusedOperations:  # it does not even read what is left after a slot's tokens
            cache[:, slot, :, start + len(tokens) :] = torch.nan
            expected[:, slot, :, start + len(tokens) :] = torch.nan
    attended = operations.attend_self(qkv, cache, places)
    assert attended.dtype == dtype
    torch.testing.assert_close(cache[:, :-1], expected[:, :-1], rtol=0, atol=0, equal_nan=True)
    exact = exactly(qkv[:, 0], expected, rows, is_causal=True)
    torch.testing.assert_close(attended[:num_tokens].float(), exact, **(close or CLOSE))

    window = random(2, NUM_SLOTS, HEADS, SIZES.max_source_positions, HEAD_SIZE, seed=2, dtype=dtype)
    query = qkv[:, 0].contiguous()
    exact = exactly(query, window, rows, is_causal=False)
    for _ in range(2):  # the first pass must not change the next
        attended = operations.attend_cross(query, window, places)
        torch.testing.assert_close(attended[:num_tokens].float(), exact, **(close or CLOSE))


@settings(max_examples=20)
@given(widths, st.integers(0, 2**16))
def test_plain_operations_attend_exactly(of_rows: list[int], seed: int):
    rows = rows_of(*((seed * (i + 1) % (POSITIONS - width + 1), width) for i, width in enumerate(of_rows)))
    check_attention(PlainOperations(), rows)


class TestKernels:
    """Run with a GPU or by :func:`test_kernels_in_the_interpreter`."""

    __test__ = IS_INTERPRETED or HAS_GPU

    @pytest.fixture
    def fused(self) -> FusedOperations:
        return FusedOperations(SIZES, DEVICE)

    @pytest.mark.parametrize("width", [1, 2, 5, 16, 17, 40])
    def test_attention(self, fused, width: int):
        """Try slots that end full, that start empty, and others."""
        check_attention(fused, rows_of((POSITIONS - width, width), (0, width), (7, 1)))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_attention_in_reduced_precision(self, fused, dtype: torch.dtype):
        if IS_INTERPRETED and dtype == torch.bfloat16:
            pytest.skip("Triton's interpreter multiplies bfloat16 as if they were integers")
        error = 4 * torch.finfo(dtype).eps
        check_attention(fused, rows_of((3, 5), (60, 5)), dtype, rtol=error, atol=error)

    def test_what_a_token_attends_to_does_not_depend_on_the_pass(self, fused):
        """Append a text at once, and in parts beside others."""
        qkv = random(16, 3, HEADS, HEAD_SIZE, seed=3)
        caches = [random(2, NUM_SLOTS, HEADS, POSITIONS, HEAD_SIZE) for _ in range(2)]
        whole = fused.attend_self(qkv, caches[0], filled([BatchRow(2, 9, [7] * 16)]).places)
        parts = []
        for first, last in ((0, 1), (1, 6), (6, 16)):
            rows = [BatchRow(0, 3, [7] * 4), BatchRow(2, 9 + first, [7] * (last - first))]
            inputs = filled(rows)
            beside = random(len(inputs.ids), 3, HEADS, HEAD_SIZE, seed=first)
            beside[4 : 4 + last - first] = qkv[first:last]
            parts.append(fused.attend_self(beside, caches[1], inputs.places)[4 : 4 + last - first])
        torch.testing.assert_close(torch.cat(parts), whole, **SAME)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    @pytest.mark.parametrize("num_tokens", [1, 16, 20, 70, 130])
    @pytest.mark.parametrize(("num_inputs", "num_outputs"), [(64, 100), (192, 2_100), (700, 40)])
    def test_projections(self, fused, num_inputs, num_outputs, num_tokens, dtype):
        error = CLOSE if dtype == torch.float32 else {"rtol": 2e-3, "atol": 4e-3}
        norm, into = nn.LayerNorm(num_inputs), nn.Linear(num_inputs, num_outputs)
        back, unembed = nn.Linear(num_outputs, num_inputs), nn.Linear(num_inputs, num_outputs, bias=False)
        with torch.no_grad():
            norm.weight += 0.5
            norm.bias -= 0.25
        for module in (norm, into, back, unembed):
            module.to(DEVICE, dtype).requires_grad_(False)
        hidden = random(num_tokens, num_inputs, seed=4, dtype=dtype) * 3 + 1
        normed = nn.functional.layer_norm(
            hidden.double(), (num_inputs,), norm.weight.double(), norm.bias.double()
        )
        exact = normed @ into.weight.double().T + into.bias.double()
        for gelu in (False, True):
            made = fused.norm_linear(hidden, norm, into, gelu=gelu)
            expected = nn.functional.gelu(exact) if gelu else exact
            torch.testing.assert_close(made.double(), expected, **error)
        logits = torch.empty(num_tokens, num_outputs, device=DEVICE)
        fused.norm_linear(hidden, norm, unembed, out=logits)
        torch.testing.assert_close(logits.double(), normed @ unembed.weight.double().T, **error)
        values = random(num_tokens, num_outputs, seed=5, dtype=dtype) / 10
        made = fused.linear_add(values, back, hidden)
        expected = hidden.double() + values.double() @ back.weight.double().T + back.bias.double()
        torch.testing.assert_close(made.double(), expected, **error)

    @pytest.mark.parametrize("num_tokens", [1, 16, 33])
    def test_a_projection_does_not_depend_on_the_other_tokens(self, fused, num_tokens: int):
        norm, into = nn.LayerNorm(64).to(DEVICE), nn.Linear(64, 90).to(DEVICE)
        hidden = random(num_tokens, 64)
        alone = fused.norm_linear(hidden[-1:], norm, into)
        torch.testing.assert_close(fused.norm_linear(hidden, norm, into)[-1:], alone, **SAME)

    def test_the_self_test_lets_right_kernels_serve(self):
        assert type(operations_for(SIZES, torch.float32, DEVICE)) is FusedOperations


@pytest.mark.nightly
@pytest.mark.skipif(IS_INTERPRETED, reason="they run here")
def test_kernels_in_the_interpreter():
    """Triton reads its mode when it is imported, so this runs another process."""
    # Before 3.7, the interpreter fails with numpy 2.4.
    pytest.importorskip("triton", minversion="3.7", reason="torch's CPU builds come without Triton")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::{TestKernels.__name__}"],
        env=kept | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.nightly
@pytest.mark.skipif(IS_INTERPRETED, reason="the interpreter accepts more than the compiler")
@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [*((each, torch.float16) for each in SHARED_KIB), (89, torch.float32), (90, torch.bfloat16)],
)
def test_kernels_compile_for_an_architecture_and_fit_into_its_memory(
    monkeypatch, tmp_path, architecture, dtype
):
    """Every kernel of large-v3's widths, without a GPU."""
    triton = pytest.importorskip("triton", reason="torch's CPU builds come without Triton")
    target = triton.backends.compiler.GPUTarget("cuda", architecture, 32)
    driver = mock.Mock(get_current_target=lambda: target, get_current_device=lambda: architecture)
    compiled = []

    class Compiling:
        def __init__(self, kernel) -> None:
            self._kernel = kernel

        def __getitem__(self, grid):
            return lambda *args, **sizes: compiled.append(self._kernel.warmup(*args, grid=grid, **sizes))

    names = ("norm_linear_kernel", "linear_add_kernel", "self_attention_kernel", "cross_attention_kernel")
    for name in names:
        monkeypatch.setattr(kernels, name, Compiling(getattr(kernels, name)))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    large_v3 = replace(
        SIZES,
        vocab_size=16_384,  # as for all larger ones
        d_model=1_280,
        decoder_attention_heads=20,
        decoder_ffn_dim=5_120,
        max_source_positions=1_500,
        max_target_positions=448,
    )
    cpu = torch.device("cpu")
    with torch.inference_mode():
        for run_by in self_test.checks(large_v3, dtype, cpu).values():
            run_by(FusedOperations(large_v3, cpu))
    assert len({one.hash for one in compiled}) > 10
    assert max(one.metadata.shared for one in compiled) <= SHARED_KIB[architecture] * 1024


def run_here(sizes, dtype, device) -> list[Finding]:
    fused = kernels.FusedOperations(sizes, device)
    return list(compare(self_test.checks(sizes, dtype, device), fused, self_test.BOUNDS[dtype]))


def raising(message: str):
    def raise_error(operations: object) -> Tensor:
        raise RuntimeError(message)

    return raise_error


def test_the_self_test_compares_each_kernel():
    """A kernel that stops the GPU is the last that is tried."""
    numbers = {"right": 1.01, "wrong": 1.1, "not a number": torch.nan}
    runs = {
        name: lambda of, number=number: torch.tensor([number if of == "kernels" else 1.0, -4.0])
        for name, number in numbers.items()
    }
    runs["failing"] = raising("out of resource: shared memory\nRequired: 1")
    runs["faulty"] = raising("CUDA error: an illegal memory access was encountered")
    found = list(compare(runs | {"never tried": runs["right"]}, "kernels", 0.01))
    assert [one.agrees for one in found] == [True, False, False, False, False]
    assert str(found[1]) == "differs by 2.5e-02 of the largest number, where 1e-02 is allowed"
    assert found[3].error == "RuntimeError: out of resource: shared memory"
    assert found[4].error == "RuntimeError: CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("kill -ABRT $$", "self-test: it ended with status -6: "),
        ("echo Traceback >&2; echo no memory >&2; exit 1", "self-test: it ended with status 1: no memory"),
        ("""echo '{"name": "logits", "bound": 0.1, "error": "wrong"}'""", "logits: wrong"),
        ("""echo warning; echo '{"name": "log'; exit 0""", "self-test: it ended with status 0: "),
        (None, "self-test: it did not start: "),
        ("exec tail -f /dev/null", "self-test: it took longer than 0 s"),
    ],
)
def test_a_self_test_that_ends_badly_lets_pytorch_serve(monkeypatch, caplog, tmp_path, program, reason):
    if program is not None:
        (tmp_path / "python").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(kernels, "reason_against", lambda device, head_size: None)
    monkeypatch.setattr(self_test, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert type(operations_for(SIZES, torch.float16, torch.device("cpu"))) is PlainOperations
    (record,) = caplog.records
    assert record.reason == reason if program is not None else record.reason.startswith(reason)


@pytest.mark.skipif(IS_INTERPRETED or HAS_GPU, reason="kernels run here")
def test_the_self_test_runs_in_a_process_of_its_own():
    found = self_test.run(SIZES, torch.float32, torch.device("cpu"))
    assert found and not any(one.agrees for one in found)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_kernels_serve_if_all_agree(monkeypatch, caplog, is_wrong):
    class Fused(PlainOperations):
        def __init__(self, sizes, device) -> None:
            pass

        def linear_add(self, values, linear, hidden):
            return super().linear_add(values, linear, hidden) + is_wrong

    monkeypatch.setattr(kernels, "reason_against", lambda device, head_size: None)
    monkeypatch.setattr(kernels, "FusedOperations", Fused)
    monkeypatch.setattr(self_test, "run", run_here)
    cpu = torch.device("cpu")
    assert type(operations_for(SIZES, torch.float16, cpu)) is (PlainOperations if is_wrong else Fused)
    shown, agrees = table(SIZES, "float16", "cpu")
    assert agrees is not is_wrong
    if is_wrong:
        (record,) = caplog.records
        assert record.levelno == logging.WARNING and "PyTorch's operations serve" in record.message
        assert record.reason.startswith("projection and residual: differs by ")
        assert shown.count("DIFFERS") == 2 and "PyTorch's operations serve on cpu" in shown
    else:
        assert not caplog.records and shown.count("agrees") == 8


@pytest.mark.parametrize(
    ("has_triton", "hip", "capability", "head_size", "reason"),
    [
        (True, None, (9, 0), 64, None),
        (False, None, (9, 0), 64, "Triton is not installed"),
        (True, "6.4", (9, 0), 64, "no kernel was compiled or tried on an AMD GPU"),
        (True, None, (7, 5), 64, "kernels need compute capability 8.0"),
        (True, None, (9, 0), 80, "heads of 80 numbers are not a power of two of at least 16"),
    ],
)
def test_without_kernels_a_warning_says_why(
    monkeypatch, caplog, has_triton, hip, capability, head_size, reason
):
    monkeypatch.setattr(kernels, "triton", mock.Mock() if has_triton else None)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert kernels.reason_against(torch.device("cuda:0"), head_size) == reason
    if reason is not None:
        sizes = replace(SIZES, d_model=2 * head_size)
        assert type(operations_for(sizes, torch.float16, torch.device("cuda:0"))) is PlainOperations
        assert [record.reason for record in caplog.records] == [reason]


@pytest.mark.skipif(IS_INTERPRETED, reason="the interpreter runs kernels on a CPU")
def test_the_servers_self_test_prints_what_can_run(capsys):
    with pytest.raises(SystemExit) as ended:
        serve(TargetConfig(self_test=True))
    assert ended.value.code == 1
    shown = capsys.readouterr().out
    assert shown.startswith("No kernel runs on cpu: ") and "Name a GPU with --device." in shown
