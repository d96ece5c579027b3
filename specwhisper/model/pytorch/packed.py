"""A GPU's forward passes: padded to a few sizes, each of which is captured once in a CUDA graph.

The inputs of a pass are copied into tensors with a fixed address, so one captured graph serves any rows of
its size. Padding changes nothing: no block of attention has its tokens.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from threading import RLock
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from specwhisper.model.backend import is_device_fault, is_out_of_memory
from specwhisper.model.pytorch.operations import BLOCK_TOKENS, BatchRow, LayerCache, Places, PlainOperations

logger = logging.getLogger(__name__)

TOKENS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128)
ALIGNED = 4  # integers in 16 bytes: Triton compiles a kernel again for a pointer that is aligned to less
# While a graph is captured, no other thread may use the device: encoders and other captures wait.
CAPTURING = RLock()
Run: TypeAlias = Callable[[], Tensor]  # its inputs and its output have fixed addresses


class Bucket(NamedTuple):
    """A size of passes: tokens of all rows, and blocks of up to 16 tokens of one row."""

    num_tokens: int
    num_blocks: int


def num_blocks(width: int) -> int:
    return -(-width // BLOCK_TOKENS)


def bucket_for(widths: Sequence[int]) -> Bucket:
    """Return the smallest bucket that rows of these widths fit in.

    Raise :class:`ValueError` if they fit in none; see :func:`divide`.
    """
    tokens, blocks = sum(widths), sum(map(num_blocks, widths))
    if tokens > TOKENS[-1] or blocks > BLOCKS[-1]:
        raise ValueError(f"{tokens} tokens in {blocks} blocks are more than one forward pass takes")
    return Bucket(TOKENS[bisect_left(TOKENS, tokens)], BLOCKS[bisect_left(BLOCKS, blocks)])


def divide(widths: Sequence[int]) -> list[range]:
    """Divide rows into as few runs of neighbours as fit in a bucket each."""
    parts, first, tokens, blocks = [], 0, 0, 0
    for row, width in enumerate(widths):
        tokens, blocks = tokens + width, blocks + num_blocks(width)
        if row > first and (tokens > TOKENS[-1] or blocks > BLOCKS[-1]):
            parts.append(range(first, row))
            first, tokens, blocks = row, width, num_blocks(width)
    return [*parts, range(first, len(widths))]


def buckets_up_to(num_rows: int, width: int) -> Iterator[Bucket]:
    """Yield every bucket that rows of up to ``width`` tokens can need."""
    most_blocks = min(num_rows * num_blocks(width), BLOCKS[-1])
    most_tokens = min(num_rows * width, TOKENS[-1])
    fewest = 1  # blocks of a smaller bucket, and one more
    for blocks in BLOCKS:
        if fewest > most_blocks:
            return
        held = min(blocks, most_blocks) * min(width, BLOCK_TOKENS)
        last = bisect_left(TOKENS, min(held, most_tokens))
        for tokens in TOKENS[bisect_left(TOKENS, fewest) : last + 1]:
            yield Bucket(tokens, blocks)
        fewest = blocks + 1


class PackedInputs:
    """The integers of one bucket's passes, adjacent in memory so that one copy fills them.

    Parameters
    ----------
    spare_slot : the slot of padding; no session has it.

    Attributes
    ----------
    ids, places : each token's id, and where the tokens are.
    """

    def __init__(self, bucket: Bucket, device: torch.device, *, spare_slot: int) -> None:
        self._spare_slot = spare_slot
        sizes = [bucket.num_tokens] * 3 + [bucket.num_blocks] * 3
        ends = [0, *accumulate(-(-size // ALIGNED) * ALIGNED for size in sizes)]
        self._parts = [slice(end, end + size) for end, size in zip(ends, sizes, strict=False)]
        self._memory = torch.zeros(ends[-1], dtype=torch.int32, device=device)
        self.ids, *places = (self._memory[part] for part in self._parts)
        self.places = Places(*places)

    def fill(self, rows: Sequence[BatchRow]) -> None:
        """Copy the tokens of a pass, at most one row for each slot, without waiting."""
        host = torch.zeros(len(self._memory), dtype=torch.int32, pin_memory=self._memory.is_cuda)
        ids, slots, positions, *blocks = (host.numpy()[part] for part in self._parts)
        slots[:] = self._spare_slot
        first, found = 0, list[tuple[int, int, int]]()
        for row in rows:
            end = first + len(row.tokens)
            ids[first:end] = row.tokens
            slots[first:end] = row.slot
            positions[first:end] = np.arange(row.start, row.start + end - first)
            found += [(at, min(BLOCK_TOKENS, end - at), first) for at in range(first, end, BLOCK_TOKENS)]
            first = end
        for part, values in zip(blocks, zip(*found, strict=True), strict=True):
            part[: len(found)] = values
        self._memory.copy_(host, non_blocking=True)


class PackedBatch(NamedTuple):
    """A bucket's tokens on the device, and their attention, as in :class:`.ragged.RaggedBatch`."""

    inputs: PackedInputs
    operations: PlainOperations

    @property
    def ids(self) -> Tensor:
        return self.inputs.ids

    @property
    def positions(self) -> Tensor:
        return self.inputs.places.positions

    def attend_self(self, cache: LayerCache, qkv: Tensor) -> Tensor:
        split = cache.split_heads(qkv, 3)
        return self.operations.attend_self(split, cache.self_cache, self.inputs.places)

    def attend_cross(self, cache: LayerCache, query: Tensor) -> Tensor:
        heads = cache.split_heads(query, 1)[:, 0]
        return self.operations.attend_cross(heads, cache.cross_cache, self.inputs.places)


class CudaGraphs:
    """Captures functions that run one after the other, in one pool of memory.

    Each output is overwritten by the next replay: queue what reads it before that. If a capture fails, or its
    replay computes other numbers, this and all further functions run as they are, kernel by kernel.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None
        self._can_capture = True

    def __call__(self, run: Run) -> Run:
        """Return what replays a function; its inputs must hold one token at least."""
        if not self._can_capture:
            return run
        try:
            with CAPTURING:
                expected = run()[0].clone()
                replay = self.capture(run)
                difference = float((replay()[0] - expected).abs().max() / expected.abs().max())
            if not difference < 0.01:
                raise RuntimeError(f"a replay differs by {difference:.2g} of the largest logit")
        except Exception as error:
            if is_out_of_memory(error) or is_device_fault(error):
                raise
            self._can_capture = False
            logger.warning(
                "CUDA graphs are not used: launching each kernel by itself serves",
                extra={"error": str(error)},
            )
            return run
        return replay

    def capture(self, run: Run) -> Run:
        """Run a function once, to compile and set up everything, then capture it."""
        with torch.cuda.device(self._device):
            caller, stream, graph = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
            stream.wait_stream(caller)
            with torch.cuda.stream(stream):
                run()
            caller.wait_stream(stream)
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            # A draft on the same GPU may be running: only this thread must not allocate.
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                output = run()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay


class PackedRunner:
    """Runs rows through a decoder's step, padded to a bucket.

    Parameters
    ----------
    step : a forward pass from token ids to logits. What it launches depends on the bucket alone.
    spare_slot : the slot of padding; no session has it.
    capture : returns a function that does the same as another one with fewer launches.
    """

    def __init__(
        self,
        step: Callable[[PackedInputs], Tensor],
        *,
        spare_slot: int,
        device: torch.device,
        capture: Callable[[Run], Run] = lambda run: run,
    ) -> None:
        self._step = step
        self._spare_slot = spare_slot
        self._device = device
        self._capture = capture
        self._captured: dict[Bucket, tuple[PackedInputs, Run]] = {}

    def run(self, rows: Sequence[BatchRow]) -> Iterator[tuple[range, Tensor]]:
        """Append tokens to slots, in as few passes as take them all.

        Yields
        ------
        The rows of a pass, whose tokens follow each other, and the logits after each token. The next pass
        overwrites them: queue what reads them before that.
        """
        for part in divide([len(row.tokens) for row in rows]):
            of_part = rows[part.start : part.stop]
            inputs, run = self._bucket(bucket_for([len(row.tokens) for row in of_part]))
            inputs.fill(of_part)
            yield part, run()

    def warm_up(self, num_rows: int, width: int) -> None:
        for bucket in buckets_up_to(num_rows, width):
            self._bucket(bucket)

    def _bucket(self, bucket: Bucket) -> tuple[PackedInputs, Run]:
        """Return a bucket's inputs and what runs them; capture it on first use."""
        if bucket not in self._captured:
            inputs = PackedInputs(bucket, self._device, spare_slot=self._spare_slot)
            inputs.fill([BatchRow(self._spare_slot, 0, [0])])
            self._captured[bucket] = inputs, self._capture(partial(self._step, inputs))
        return self._captured[bucket]
