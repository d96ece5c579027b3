"""A forward pass' integers at fixed addresses: a graph serves any rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specwhisper.model.pytorch.kernels.buckets import BLOCK_TOKENS, Bucket
from specwhisper.model.pytorch.kernels.layer_cache import BatchRow

ALIGNED = 4  # integers in 16 bytes: Triton compiles a kernel again for a pointer that is aligned to less
NO_CANDIDATE = -1


class Blocks(NamedTuple):
    """Blocks of at most 16 tokens of one row, on the device.

    Attributes
    ----------
    firsts : first token of each, among all tokens of the pass.
    counts : tokens of each.
    row_firsts : first token of the row that each belongs to.
    """

    firsts: Tensor
    counts: Tensor
    row_firsts: Tensor


class Following(NamedTuple):
    """The tokens that may follow a row's last ones, and its number of candidates.

    Attributes
    ----------
    allowed : for each of the last tokens the state, the first and the last time
        (:class:`specwhisper.model.rules.Allowed`).
    num_candidates : how many of the last tokens are candidates.
    """

    allowed: Sequence[tuple[int, int, int]] = ()
    num_candidates: int = 0


class PackedInputs:
    """Inputs of one bucket, adjacent in memory so that one copy fills them.

    Parameters
    ----------
    spare_slot : the slot of padding; no session has it.

    Attributes
    ----------
    ids, positions, slots : of each token: its id, its position in its slot, and the slot.
    states, first_times, last_times : what may follow each token.
    candidates : the next token of each, where it is to be verified; otherwise :data:`NO_CANDIDATE`.
    blocks : the tokens as attention takes them.
    """

    def __init__(self, bucket: Bucket, device: torch.device, *, spare_slot: int) -> None:
        self._spare_slot = spare_slot
        sizes = [bucket.num_tokens] * 7 + [bucket.num_blocks] * 3
        ends = [0, *accumulate(-(-size // ALIGNED) * ALIGNED for size in sizes)]
        self._parts = [slice(end, end + size) for end, size in zip(ends, sizes, strict=False)]
        self._memory = torch.zeros(ends[-1], dtype=torch.int32, device=device)
        parts = [self._memory[part] for part in self._parts]
        self.ids, self.positions, self.slots = parts[:3]
        self.states, self.first_times, self.last_times, self.candidates = parts[3:7]
        self.blocks = Blocks(*parts[7:])
        self.slots.fill_(spare_slot)  # a pass may run before it is filled, to compile what it launches

    def fill(self, rows: Sequence[BatchRow], following: Sequence[Following]) -> None:
        """Copy a pass' inputs, of at most one row for each slot; do not wait."""
        host = torch.zeros(len(self._memory), dtype=torch.int32, pin_memory=self._memory.is_cuda)
        parts = [host.numpy()[part] for part in self._parts]
        ids, positions, slots, states, first_times, last_times, candidates, *blocks = parts
        slots[:] = self._spare_slot
        candidates[:] = NO_CANDIDATE
        first, found = 0, list[tuple[int, int, int]]()
        for row, (allowed, num) in zip(rows, following, strict=True):
            end = first + len(row.tokens)
            ids[first:end] = row.tokens
            positions[first:end] = np.arange(row.start, row.start + end - first)
            slots[first:end] = row.slot
            if allowed:
                scored = slice(end - len(allowed), end)
                states[scored], first_times[scored], last_times[scored] = np.array(allowed, np.int32).T
            if num:
                candidates[end - 1 - num : end - 1] = row.tokens[len(row.tokens) - num :]
            found += [(at, min(BLOCK_TOKENS, end - at), first) for at in range(first, end, BLOCK_TOKENS)]
            first = end
        for part, values in zip(blocks, zip(*found, strict=True), strict=True):
            part[: len(found)] = values
        self._memory.copy_(host, non_blocking=True)
