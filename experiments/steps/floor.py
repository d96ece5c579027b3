"""The least a pass can take: bytes that must be read and operations that must be done, at measured speeds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import WhisperConfig

BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
PROBE_BYTES = 320 * 2**20  # more than caches hold
PROBE_ROWS = 1500


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's best speeds with its threads: bytes and operations per second."""

    bytes_per_s: float
    ops_per_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes and operations of one part of a pass."""

    num_bytes: float
    num_ops: float

    def floor_s(self, machine: Machine, dtype: str) -> float:
        """Return the time that the slower of the two needs."""
        return max(self.num_bytes / machine.bytes_per_s, self.num_ops / machine.ops_per_s[dtype])


def pass_work(config: WhisperConfig, dtype: str, *, rows: int, width: int, held: int) -> dict[str, Work]:
    """Return what a forward pass must read and compute, part by part.

    Parameters
    ----------
    dtype : of the weights; what lies in the slots has the weights' type, or bfloat16 beside int8.
    rows, width, held : slots, tokens that each appends, tokens that each holds already.
    """
    size, layers, tokens = config.d_model, config.decoder_layers, rows * width
    per_weight, per_kept = BYTES[dtype], max(2, BYTES[dtype])
    weights = layers * (6 * size**2 + 2 * size * config.decoder_ffn_dim)
    seen = {"cross-attention": config.max_source_positions, "self-attention": held + width}
    work = {
        "layers": Work(weights * per_weight, 2 * tokens * weights),
        "logits": Work(
            config.vocab_size * (size * per_weight + tokens * 4), 2 * tokens * config.vocab_size * size
        ),
    }
    for name, positions in seen.items():
        kept = 2 * rows * positions * size * layers
        work[name] = Work(kept * per_kept, 2 * width * kept)
    return work


def floor_s(config: WhisperConfig, dtype: str, machine: Machine, **sizes: int) -> float:
    """Return the least time of a pass; attention computes in the type of what it reads."""
    attends = "bfloat16" if dtype == "int8" else dtype
    return sum(
        work.floor_s(machine, attends if name.endswith("attention") else dtype)
        for name, work in pass_work(config, dtype, **sizes).items()
    )


def measure_machine() -> Machine:
    """Read as fast, and multiply as fast, as the best of PyTorch's kernels does here."""
    matrix = torch.ones(PROBE_BYTES // 4 // 1024, 1024)
    vector, flat = torch.ones(1, 1024), matrix.flatten()
    readers = (lambda: F.linear(vector, matrix), lambda: flat.sum(), lambda: torch.dot(flat, flat))
    fastest_s = min(_best_s(read) for read in readers)
    return Machine(PROBE_BYTES / fastest_s, {dtype: _ops_per_s(dtype) for dtype in BYTES})


def _ops_per_s(dtype: str) -> float:
    size = 2048
    if dtype == "int8":
        values = torch.ones(PROBE_ROWS, size, dtype=torch.uint8)
        packed = torch.ops.onednn.qlinear_prepack(torch.ones(size, size, dtype=torch.int8), None)
        scale, zero = torch.ones(size), torch.zeros(size, dtype=torch.int64)
        seconds = _best_s(
            lambda: torch.ops.onednn.qlinear_pointwise(
                *(values, 1.0, 0, packed, scale, zero, None, 1.0, 0, torch.float32, "none", [], "")
            )
        )
    else:
        type_ = getattr(torch, dtype)
        values, weights = torch.ones(PROBE_ROWS, size, dtype=type_), torch.ones(size, size, dtype=type_)
        seconds = _best_s(lambda: F.linear(values, weights))
    return 2 * PROBE_ROWS * size**2 / seconds


def _best_s(run: Callable[[], object], times: int = 7) -> float:
    run()
    seconds = []
    for _ in range(times):
        started_s = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started_s)
    return min(seconds)
