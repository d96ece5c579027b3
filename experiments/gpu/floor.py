"""The floor of a GPU's forward pass: bytes and operations at the speeds measured here."""

from __future__ import annotations

from dataclasses import replace

import torch
from transformers import WhisperConfig

from experiments.gpu.clock import busy_s
from experiments.gpu.weights import Place
from experiments.steps.floor import Machine, pass_work

DTYPES = ("float16", "bfloat16", "float32")
COPIED_BYTES = 2 * 2**30  # far more than the caches
MATRIX_SIZE = 8192
NARROW = 2**8  # divides both on a CPU
SCALE_BYTES = 2  # per position and head of an 8-bit cache


def measure_machine(place: Place) -> Machine:
    """Measure torch's fastest copy or read, and matrix products."""
    num_bytes = COPIED_BYTES // (NARROW if place.is_narrow else 1)
    size = MATRIX_SIZE // (NARROW // 8 if place.is_narrow else 1)
    source = torch.empty(num_bytes, dtype=torch.uint8, device=place.device).random_()
    target = torch.empty_like(source)
    copy_s = min(busy_s(lambda: target.copy_(source), place, 10))
    numbers = source.view(torch.float32)
    read_s = min(busy_s(lambda: numbers.amax(), place, 10))
    ops_per_s = {}
    for dtype in DTYPES:
        values = torch.randn(2, size, size, device=place.device).to(getattr(torch, dtype))
        multiply_s = min(busy_s(lambda values=values: values[0] @ values[1], place, 10))
        ops_per_s[dtype] = 2 * size**3 / multiply_s
    return Machine(max(2 * num_bytes / copy_s, num_bytes / read_s), ops_per_s)


def floor_s(
    config: WhisperConfig,
    dtype: str,
    machine: Machine,
    *,
    rows: int,
    width: int,
    held: int,
    cross_cache: str | None = None,
) -> float:
    """Return the floor of a forward pass: weights, caches and logits at full speed."""
    sized = "bfloat16" if dtype == "float16" else dtype  # of equal size
    work = pass_work(config, sized, rows=rows, width=width, held=held)
    if cross_cache is not None:
        cross, head_size = work["cross-attention"], config.d_model // config.decoder_attention_heads
        exact_bytes = 4 if dtype == "float32" else 2
        rounded = cross.num_bytes / exact_bytes * (1 + SCALE_BYTES / head_size)
        work["cross-attention"] = replace(cross, num_bytes=rounded)
    return sum(part.floor_s(machine, dtype) for part in work.values())
