"""The least a pass can take: bytes that must be read and operations that must be done, at measured speeds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from transformers import WhisperConfig

from specwhisper.model.backends import num_threads
from specwhisper.model.onnx.graph import Graph

BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}  # size of a weight
KEPT = {"float32": "float32", "bfloat16": "bfloat16", "int8": "float32"}  # type of what lies in slots
PROBE_BYTES = 320 * 2**20  # more than caches hold
PROBE_ROWS, PROBE_SIZE = 1500, 2048  # sizes of a matrix product
ONNX_PRODUCTS = {  # operator, types of activations, weights and sums
    "float32": ("MatMul", np.float32, np.float32, np.float32),
    "int8": ("MatMulInteger", np.uint8, np.int8, np.int32),
}


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
    dtype : type of the weights. Slots have the same type, or float32 with int8.
    rows, width, held : slots, tokens that each appends, tokens that each holds already.
    """
    size, layers, tokens = config.d_model, config.decoder_layers, rows * width
    per_weight, per_kept = BYTES[dtype], BYTES[KEPT[dtype]]
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
    return sum(
        work.floor_s(machine, KEPT[dtype] if name.endswith("attention") else dtype)
        for name, work in pass_work(config, dtype, **sizes).items()
    )


def measure_machine() -> Machine:
    """Read as fast as PyTorch does here; multiply as fast as the library that runs a data type."""
    matrix = torch.ones(PROBE_BYTES // 4 // 1024, 1024)
    vector, flat = torch.ones(1, 1024), matrix.flatten()
    readers = (lambda: F.linear(vector, matrix), lambda: flat.sum(), lambda: torch.dot(flat, flat))
    fastest_s = min(_best_s(read) for read in readers)
    return Machine(PROBE_BYTES / fastest_s, {dtype: _ops_per_s(dtype) for dtype in BYTES})


def _ops_per_s(dtype: str) -> float:
    multiply = _torch_product() if dtype == "bfloat16" else _onnx_product(dtype)
    return 2 * PROBE_ROWS * PROBE_SIZE**2 / _best_s(multiply)


def _torch_product() -> Callable[[], object]:
    values = torch.ones(PROBE_ROWS, PROBE_SIZE, dtype=torch.bfloat16)
    weights = torch.ones(PROBE_SIZE, PROBE_SIZE, dtype=torch.bfloat16)
    return lambda: F.linear(values, weights)


def _onnx_product(dtype: str) -> Callable[[], object]:
    operator, inputs, weights, sums = ONNX_PRODUCTS[dtype]
    graph = Graph()
    graph.input("values", inputs, ("rows", PROBE_SIZE))
    product = graph.node(operator, "values", graph.weight(np.ones((PROBE_SIZE, PROBE_SIZE), weights)))
    graph.output("sums", product, sums, ("rows", PROBE_SIZE))
    session = graph.open(num_threads())
    values = {"values": np.ones((PROBE_ROWS, PROBE_SIZE), inputs)}
    return lambda: session.run(None, values)


def _best_s(run: Callable[[], object], times: int = 7) -> float:
    run()
    seconds = []
    for _ in range(times):
        started_s = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started_s)
    return min(seconds)
