"""Launches of a GPU's forward pass, and the resources of its kernels, without a GPU."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from specwhisper.model.choosing import Row
from specwhisper.model.model import WhisperModel
from specwhisper.model.pytorch import packed_scorer
from specwhisper.model.pytorch.kernels.linear import MAX_FUSED_TOKENS
from tests.nightly import NIGHTLY
from tests.unit.model.pytorch.test_model_static_shapes import CHECKPOINT, NUM_SLOTS, recording

pytest.importorskip("triton", reason="Triton is not installed: torch's CPU builds come without it")
from scripts import kernels

MAX_PER_LAYER = 9
LAYER = Counter(norm_linear_kernel=3, self_attention_kernel=1, cross_attention_kernel=1, linear_add_kernel=3)


def names(widths: list[int], num_layers: int) -> Counter[str]:
    return Counter(launch.name for launch in kernels.launches(widths, num_layers=num_layers))


@pytest.mark.parametrize("widths", [[1], [8], [5] * 8, [4] * 32, [1] * MAX_FUSED_TOKENS])
def test_a_layer_takes_eight_kernels(widths):
    one, two = names(widths, 1), names(widths, 2)
    assert two - one == LAYER
    assert LAYER.total() <= MAX_PER_LAYER
    # Beside the layers: tokens and positions, logits and choices, and one copy of inputs.
    allocated_once = {"zeros": 2, "fill_.Scalar": 1}  # the bucket's inputs
    each_pass = {"copy_": 1, "embedding": 2, "add.Tensor": 1, "norm_linear_kernel": 1}
    each_pass |= {"best_of_part_kernel": 1, "choose_kernel": 1}
    assert one - LAYER == Counter(allocated_once) + Counter(each_pass)


@pytest.mark.parametrize("widths", [[5] * 64, [227], [8] * 128])
def test_torch_multiplies_where_there_are_many_tokens(widths):
    assert (names(widths, 2) - names(widths, 1)).total() == 15


@pytest.mark.parametrize(
    ("rows", "num_waits"),
    [
        ([{}] * 3, 1),
        ([{"acceptance_threshold": 0.001}] * 3, 1),
        ([{"probe": 0}, {}, {"acceptance_threshold": 0.5}], 2),
    ],
)
def test_the_host_waits_once_for_choices(monkeypatch, rows, num_waits):
    model, waits = WhisperModel(CHECKPOINT, NUM_SLOTS, has_static_shapes=True), []

    def to_host(values: torch.Tensor):
        copied = values.clone()
        return lambda: waits.append(1) or copied

    class NoWaits(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert "_local_scalar_dense" not in func.name() and "nonzero" not in func.name()
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr(packed_scorer, "to_host", to_host)
    for slot in range(NUM_SLOTS):
        model.encode(slot, recording(slot), 0)
    made = [Row(slot, [301, 302, 401, 5, 6], 2, (), timestamps=True, **row) for slot, row in enumerate(rows)]
    with NoWaits():
        model.score(made)
    assert len(waits) == num_waits


def table() -> dict:
    page = kernels.PAGE.read_text()
    if f"Triton {kernels.compiler_version()}" not in page:
        pytest.skip("the table is of another version of Triton")
    return kernels.parse_table(page)


def test_every_kernel_fits_into_the_shared_memory_of_its_architecture():
    for architecture, kernels_of_it in table().items():
        most = max(resources.shared for resources in kernels_of_it.values())
        assert most <= kernels.MAX_SHARED_KIB[architecture] * 1024


@pytest.mark.parametrize("architecture", kernels.ARCHITECTURES)
def test_kernels_compile_and_take_no_more_than_documented(monkeypatch, tmp_path, architecture):
    """The interpreter accepts more than the compiler."""
    assert kernels.kernels_of_passes(architecture).keys() == table()[architecture].keys()
    if not NIGHTLY and f"`{kernels.digest()}`" in kernels.PAGE.read_text():
        pytest.skip("the table is of this code; compiled again with SPECWHISPER_NIGHTLY=1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    found, documented = kernels.measure(architecture), table()[architecture]
    assert found.keys() == documented.keys(), "run python -m scripts.kernels"
    for key, one in found.items():
        most = documented[key]
        assert one.spilled <= most.spilled == 0, key
        assert one.registers <= most.registers, key
        assert round(one.shared / 1024, 1) <= round(most.shared / 1024, 1), key
