"""``steps``: a decoder's pass in each precision, against its floor and transformers."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from experiments.common.bench.program import Program, Rounds, program
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import ratio_of_medians, spread
from experiments.common.models.checkpoints import PUBLISHED, build_checkpoint
from specwhisper.model.backends import num_threads, open_backend
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.onnx.graph import Graph, sums_bytes_exactly

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
    if dtype == "bfloat16":
        values = torch.ones(PROBE_ROWS, PROBE_SIZE, dtype=torch.bfloat16)
        weights = torch.ones(PROBE_SIZE, PROBE_SIZE, dtype=torch.bfloat16)
        seconds = _best_s(lambda: F.linear(values, weights))
    else:
        seconds = _best_s(_onnx_product(dtype))
    return 2 * PROBE_ROWS * PROBE_SIZE**2 / seconds


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


HELD = 60  # tokens in each slot: the middle of a window of speech
ALONE = ((1, 1), (1, 5), (1, 17))
TOGETHER = ((8, 1), (8, 5))
PRECISIONS = ("float32", "bfloat16", *(("int8",) if sums_bytes_exactly() else ()))
THEIRS = "transformers"
STEPS = 8  # steps in a row: a server steps one model again and again


class Subject(Protocol):
    """A decoder that holds some tokens in each of its slots."""

    def step(self, rows: int, width: int) -> None:
        """Append tokens to the first slots, score each, and roll back."""


class Ours:
    """Slots of a checkpoint in the library that serves its dtype on a CPU."""

    def __init__(self, checkpoint: Checkpoint, *, slots: int, held: int) -> None:
        self._backend = open_backend(checkpoint, slots)
        self._held = held
        sizes = checkpoint.sizes
        shape = slots, sizes.num_mel_bins, 2 * sizes.max_source_positions
        noise = np.random.default_rng(0).standard_normal(shape, np.float32)
        with self._backend.inference():
            self._backend.encode(list(enumerate(noise)))
            self._backend.append(range(slots), [[1] * held] * slots, [1] * slots)

    def step(self, rows: int, width: int) -> None:
        with self._backend.inference():
            self._backend.append(range(rows), [[1] * width] * rows, [width] * rows)
        for slot in range(rows):
            self._backend.rollback(slot, self._held)


class Transformers:
    """The same weights in transformers, float32, as ``generate`` steps them."""

    def __init__(self, model: WhisperForConditionalGeneration, *, held: int) -> None:
        self._model = model
        self._held = held
        config: WhisperConfig = model.config
        self._encoded = BaseModelOutput(torch.randn(1, config.max_source_positions, config.d_model))
        self._cache: Any = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
        self._run(held)

    @torch.inference_mode()
    def _run(self, width: int) -> None:
        self._model(
            encoder_outputs=self._encoded,
            decoder_input_ids=torch.ones(1, width, dtype=torch.long),
            cache=self._cache,
            use_cache=True,
        )

    def step(self, rows: int, width: int) -> None:
        assert rows == 1
        self._run(width)
        self._cache.crop(-width)


@dataclass(slots=True)
class Row:
    """One decoder and one size of pass: seconds per pass, round after round, and the least they can be."""

    shape: str
    name: str
    rows: int
    width: int
    floor_s: float
    seconds: list[float] = field(default_factory=list)


@program
def steps(
    given: Program,
    rounds: Rounds = 7,
) -> None:
    """Time passes of decoders with random weights of true shape, in turns, in every precision.

    A pass appends tokens to each of some sessions, scores after every token, and rolls back. The
    floor is what must be read and computed at the speed that this machine reaches at best; the audio's
    encoder is not part of it.
    """
    rounds, machine = given.choose(3, rounds), measure_machine()
    given.print(
        f"{num_threads()} threads read {machine.bytes_per_s / 1e9:.1f} GB/s and do "
        + ", ".join(f"{ops / 1e9:.0f} Gop/s in {dtype}" for dtype, ops in machine.ops_per_s.items())
    )
    table: list[Row] = []
    for name in ("tiny", "small"):
        table += measure_shape(name, machine, rounds, given.seed, given.console)
    print_table(table, given.seed, given.console)
    figures = {"threads": num_threads(), "floor": asdict(machine), "rows": [asdict(row) for row in table]}
    given.end({"weights": "random", "held_tokens": HELD}, figures, find_bars(table, given.seed))


def measure_shape(name: str, machine: Machine, rounds: int, seed: int, console: Console) -> list[Row]:
    model, checkpoint = build_checkpoint(replace(PUBLISHED[name], encoder_layers=1, seed=seed), name)
    subjects: dict[str, Subject] = {THEIRS: Transformers(model, held=HELD)}
    subjects |= {dtype: Ours(replace(checkpoint, dtype=dtype), slots=8, held=HELD) for dtype in PRECISIONS}
    found = []
    for subject in subjects:
        dtype = "float32" if subject == THEIRS else subject
        for rows, width in ALONE if subject == THEIRS else (*ALONE, *TOGETHER):
            least_s = floor_s(model.config, dtype, machine, rows=rows, width=width, held=HELD)
            found.append(Row(name, subject, rows, width, least_s))
    random = np.random.default_rng(seed)
    for _ in track(range(rounds), description=name, console=console, transient=True):
        for index in random.permutation(len(found)):
            row = found[index]
            step = subjects[row.name].step
            for _ in range(2):
                step(row.rows, row.width)
            started_s = time.perf_counter()
            for _ in range(STEPS):
                step(row.rows, row.width)
            row.seconds.append((time.perf_counter() - started_s) / STEPS)
    del subjects, model, checkpoint
    gc.collect()
    return found


def find_bars(table: list[Row], seed: int) -> list[Bar]:
    by_key = {(row.shape, row.name, row.rows, row.width): row for row in table}
    bars = []
    for shape, width, bound in (("tiny", 1, 0.4), ("small", 5, 0.5)):
        ours, theirs = by_key.get((shape, "int8", 1, width)), by_key.get((shape, THEIRS, 1, width))
        if ours and theirs:
            ratio = ratio_of_medians(ours.seconds, theirs.seconds, seed=seed)
            name = f"int8 pass of {width} on {shape} shape over transformers' in float32"
            bars.append(Bar(name, ratio.high, bound, str(ratio)))
    for dtype in PRECISIONS:
        if row := by_key.get(("small", dtype, 8, 5)):
            multiple = spread([seconds / row.floor_s for seconds in row.seconds])
            name = f"pass of 8 sessions x 5 tokens on small shape, {dtype}, over its floor"
            bars.append(Bar(name, multiple.median, 1.25, f"{multiple:.2f}"))
    return bars


def print_table(table: list[Row], seed: int, console: Console) -> None:
    theirs = {(row.shape, row.rows, row.width): row for row in table if row.name == THEIRS}
    shown = Table(
        "shape", "decoder", "sessions x tokens", "ms (quartiles)", "floor, ms", "times", "/ transformers"
    )
    for row in sorted(table, key=lambda row: (row.shape, row.rows, row.width)):
        beside = theirs.get((row.shape, row.rows, row.width))
        ratio = ratio_of_medians(row.seconds, beside.seconds, seed=seed) if beside else None
        shown.add_row(
            row.shape,
            row.name,
            f"{row.rows} x {row.width}",
            f"{spread([seconds * 1e3 for seconds in row.seconds]):.2f}",
            f"{row.floor_s * 1e3:.2f}",
            f"{np.median(row.seconds) / row.floor_s:.2f}",
            str(ratio or ""),
        )
    console.print(shown)
