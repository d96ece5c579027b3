"""Run batches padded to a few shapes, as a GPU does.

Each shape is captured once in a CUDA graph. A batch's inputs are copied into tensors with a fixed address
(:class:`StaticInputs`), so that one captured graph serves any slots, starts and lengths. Padding changes
nothing: its rows use a spare slot, and nothing is written after the last token of a row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, product
from typing import NamedTuple

import torch
from torch import Tensor

from specwhisper.model.pytorch.kernels.graphs import Run
from specwhisper.model.pytorch.kernels.layer_cache import BatchRow
from specwhisper.model.pytorch.kernels.padded_batch import PaddedBatch
from specwhisper.model.pytorch.transfer import to_device

BATCHES = (1, 2, 4, 8, 16, 32, 64)
WIDTHS = (1, 2, 4, 6, 8, 12, 16, 24, 32)
# Padding that costs as much as another forward pass: tokens that a GPU multiplies while it reads the weights.
FORWARD_TOKENS = 256
ALIGNED = 4  # integers in 16 bytes: Triton compiles a kernel again for a pointer that is aligned to less


class Shape(NamedTuple):
    """Rows of a batch and tokens of each row, padding included."""

    rows: int
    width: int

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows."""
        return self.rows * self.width

    @property
    def is_bucket(self) -> bool:
        """Whether smaller batches are padded to this shape."""
        return self.rows in BATCHES and self.width in WIDTHS


def shape_for(num_rows: int, width: int) -> Shape:
    """Return the smallest bucket for a batch, or its own shape if it fits none."""
    if num_rows > BATCHES[-1] or width > WIDTHS[-1]:
        return Shape(num_rows, width)
    return Shape(BATCHES[bisect_left(BATCHES, num_rows)], WIDTHS[bisect_left(WIDTHS, width)])


def divide(widths: Sequence[int]) -> list[list[int]]:
    """Divide rows into one batch or two.

    Wide rows run apart where they would pad the others too much. More rows than the largest bucket has are
    first divided by width into batches of its size.

    Returns
    -------
    For each batch, indices into ``widths`` in ascending order.
    """
    whole, most = [*range(len(widths))], BATCHES[-1]
    narrowest_first = sorted(whole, key=widths.__getitem__)
    if len(widths) > most:
        groups = [sorted(narrowest_first[first : first + most]) for first in range(0, len(widths), most)]
        return [[rows[i] for i in part] for rows in groups for part in divide([widths[i] for i in rows])]

    def cost(rows: Sequence[int]) -> int:
        return FORWARD_TOKENS + shape_for(len(rows), widths[rows[-1]]).num_tokens

    best, parts = cost(narrowest_first), [whole]
    for cut in range(1, len(widths)):
        narrow, wide = narrowest_first[:cut], narrowest_first[cut:]
        if widths[narrow[-1]] < widths[wide[0]] and (total := cost(narrow) + cost(wide)) < best:
            best, parts = total, [sorted(narrow), sorted(wide)]
    return parts


class StaticInputs:
    """Inputs of a batch of one shape, adjacent in memory so that one copy fills them.

    Attributes
    ----------
    batch : the layers' input; at first no row appends anything.
    wanted : indices of tokens among those of all rows; the first ones are valid, as many as are asked for.
    """

    def __init__(self, shape: Shape, num_positions: int, device: torch.device) -> None:
        num_wanted = shape.num_tokens + shape.rows  # every token, and one of each row as a probe too
        sizes = (shape.num_tokens, shape.rows, shape.rows, shape.rows, num_wanted)
        ends = [0, *accumulate(-(-size // ALIGNED) * ALIGNED for size in sizes)]
        self._shape = shape
        self._parts = [slice(end, end + size) for end, size in zip(ends, sizes, strict=False)]
        self._memory = torch.zeros(ends[-1], dtype=torch.int32, device=device)
        ids, slots, starts, lengths, self.wanted = (self._memory[part] for part in self._parts)
        self.batch = PaddedBatch(ids.view(shape), slots, starts, lengths, num_positions)

    def fill(self, rows: Sequence[BatchRow], wanted: Sequence[tuple[int, int]], *, spare_slot: int) -> None:
        """Copy a batch's inputs; rows of padding use ``spare_slot``.

        Does not wait for the device.

        ``wanted`` are tokens as (row, index in the row).
        """
        host = torch.zeros(len(self._memory), dtype=torch.int32, pin_memory=self._memory.is_cuda)
        ids, slots, starts, lengths, wanted_indices = (host.numpy()[part] for part in self._parts)
        slots[:] = spare_slot
        for index, (slot, start, tokens) in enumerate(rows):
            first = index * self._shape.width
            ids[first : first + len(tokens)] = tokens
            slots[index], starts[index], lengths[index] = slot, start, len(tokens)
        wanted_indices[: len(wanted)] = [row * self._shape.width + index for row, index in wanted]
        self._memory.copy_(host, non_blocking=True)


class PaddedRunner:
    """Runs rows through a decoder, padded to a bucket; a :class:`BatchRunner`.

    Parameters
    ----------
    layers : returns the hidden states of a batch, rows x width x d_model, after all layers or the first ones.
        The kernels that it launches depend on the batch's shape alone.
    num_positions : most positions of a slot.
    spare_slot : the slot of padding; no session has it.
    capture : returns a function that does the same as another one with fewer launches.
    """

    def __init__(
        self,
        layers: Callable[[PaddedBatch, int | None], Tensor],
        *,
        num_positions: int,
        spare_slot: int,
        device: torch.device,
        capture: Callable[[Run], Run],
    ) -> None:
        self._layers = layers
        self._num_positions = num_positions
        self._spare_slot = spare_slot
        self._device = device
        self._capture = capture
        self._captured: dict[Shape, tuple[StaticInputs, Run]] = {}

    def run(
        self, rows: Sequence[BatchRow], wanted: Sequence[tuple[int, int]], *, num_layers: int | None = None
    ) -> Tensor:
        """Append tokens to slots and return the hidden states of some of them."""
        parts = divide([len(row.tokens) for row in rows])
        if len(parts) == 1 or num_layers is not None:
            return self._run_batch(rows, wanted, num_layers)
        found, order = [], list[int]()
        for part in parts:
            row_in_part = {row: i for i, row in enumerate(part)}
            asked = [i for i, (row, _) in enumerate(wanted) if row in row_in_part]
            tokens = [(row_in_part[row], index) for row, index in (wanted[i] for i in asked)]
            found.append(self._run_batch([rows[row] for row in part], tokens))
            order += asked
        as_wanted = sorted(range(len(order)), key=order.__getitem__)
        return torch.cat(found).index_select(0, to_device(as_wanted, self._device))

    def _run_batch(
        self, rows: Sequence[BatchRow], wanted: Sequence[tuple[int, int]], num_layers: int | None = None
    ) -> Tensor:
        shape = shape_for(len(rows), max(len(row.tokens) for row in rows))
        if shape.is_bucket and num_layers is None:
            inputs, run = self._bucket(shape)
        else:
            inputs = self._inputs(shape)
            run = partial(self._layers, inputs.batch, num_layers)
        inputs.fill(rows, wanted, spare_slot=self._spare_slot)
        return run().flatten(0, 1).index_select(0, inputs.wanted[: len(wanted)])

    def warm_up(self, num_rows: int, width: int) -> None:
        """Capture every bucket for batches of up to ``num_rows`` x ``width`` tokens."""
        most = shape_for(num_rows, width)
        for rows, columns in product(BATCHES, WIDTHS):
            if rows <= most.rows and columns <= most.width:
                self._bucket(Shape(rows, columns))

    def _bucket(self, shape: Shape) -> tuple[StaticInputs, Run]:
        """Return a bucket's inputs and what runs them; capture it on first use."""
        if shape not in self._captured:
            inputs = self._inputs(shape)
            self._captured[shape] = inputs, self._capture(partial(self._layers, inputs.batch, None))
        return self._captured[shape]

    def _inputs(self, shape: Shape) -> StaticInputs:
        return StaticInputs(shape, self._num_positions, self._device)
