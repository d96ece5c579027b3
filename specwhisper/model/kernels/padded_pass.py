"""Passes as a GPU runs them: rows padded to one of a few shapes, each of which is captured once.

What a pass reads of the host lies in tensors that stay where they are (:class:`StaticInputs`): the same
captured graph serves any slots, starts and lengths. Padding changes nothing: rows of it have a slot that is
nobody's, and behind the last token of a row nothing is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, product
from typing import NamedTuple

import torch
from torch import Tensor

from specwhisper.model.kernels.graphs import Run
from specwhisper.model.kernels.slot_attention import Fed
from specwhisper.model.transfer import to_device

BATCHES = (1, 2, 4, 8, 16, 32, 64)
WIDTHS = (1, 2, 4, 6, 8, 12, 16, 24, 32)
# Padding that costs as much as another pass: a GPU multiplies so many tokens while it reads the weights.
PASS_TOKENS = 256
ALIGNED = 4  # integers in 16 bytes: Triton compiles a kernel again for a pointer at anything less


class Shape(NamedTuple):
    """Rows and tokens of each, padding included."""

    rows: int
    width: int

    @property
    def num_tokens(self) -> int:
        """Tokens in all."""
        return self.rows * self.width

    @property
    def is_bucket(self) -> bool:
        """Whether passes of many sizes are padded to this shape."""
        return self.rows in BATCHES and self.width in WIDTHS


def shape_for(num_rows: int, width: int) -> Shape:
    """Give the bucket that so many rows fit into, or, where none is so large, just their shape."""
    if num_rows > BATCHES[-1] or width > WIDTHS[-1]:
        return Shape(num_rows, width)
    return Shape(BATCHES[bisect_left(BATCHES, num_rows)], WIDTHS[bisect_left(WIDTHS, width)])


def divide(widths: Sequence[int]) -> list[list[int]]:
    """Divide rows into those of one pass or two: wide ones go apart where they would pad the others too much.

    More rows than the largest bucket has are first divided by their width into as many as it has.

    Returns
    -------
    Places in ``widths``, in order.
    """
    whole, most = [*range(len(widths))], BATCHES[-1]
    narrowest_first = sorted(whole, key=widths.__getitem__)
    if len(widths) > most:
        groups = [sorted(narrowest_first[first : first + most]) for first in range(0, len(widths), most)]
        return [[rows[i] for i in part] for rows in groups for part in divide([widths[i] for i in rows])]

    def cost(rows: Sequence[int]) -> int:
        return PASS_TOKENS + shape_for(len(rows), widths[rows[-1]]).num_tokens

    best, parts = cost(narrowest_first), [whole]
    for cut in range(1, len(widths)):
        narrow, wide = narrowest_first[:cut], narrowest_first[cut:]
        if widths[narrow[-1]] < widths[wide[0]] and (total := cost(narrow) + cost(wide)) < best:
            best, parts = total, [sorted(narrow), sorted(wide)]
    return parts


class PaddedRows(NamedTuple):
    """Rows of equal width, on the device.

    Attributes
    ----------
    ids : rows x width; of padding, any.
    slots, starts, lengths : per row: the slot, the tokens it holds, the tokens to append.
    """

    ids: Tensor
    slots: Tensor
    starts: Tensor
    lengths: Tensor

    @property
    def positions(self) -> Tensor:
        """Where each token stands in its slot, rows x width; padding may stand behind the last position."""
        return self.starts[:, None] + torch.arange(self.ids.shape[1], device=self.ids.device)


class StaticInputs:
    """What a pass of one shape reads: side by side in memory, so that one copy fills it.

    Attributes
    ----------
    rows : what the layers read; at first nothing is to be appended.
    wanted : places of tokens among those of all rows; as many as the pass asks for are valid.
    """

    def __init__(self, shape: Shape, device: torch.device) -> None:
        num_wanted = shape.num_tokens + shape.rows  # every token, and one of each row as a probe too
        sizes = (shape.num_tokens, shape.rows, shape.rows, shape.rows, num_wanted)
        ends = [0, *accumulate(-(-size // ALIGNED) * ALIGNED for size in sizes)]
        self._shape = shape
        self._parts = [slice(end, end + size) for end, size in zip(ends, sizes, strict=False)]
        self._memory = torch.zeros(ends[-1], dtype=torch.int32, device=device)
        ids, slots, starts, lengths, self.wanted = (self._memory[part] for part in self._parts)
        self.rows = PaddedRows(ids.view(shape), slots, starts, lengths)

    def fill(self, rows: Sequence[Fed], wanted: Sequence[tuple[int, int]], *, spare_slot: int) -> None:
        """Copy a pass's numbers behind what the device still has to do; rows of padding have ``spare_slot``.

        ``wanted`` are tokens as (row, index in the row).
        """
        host = torch.zeros(len(self._memory), dtype=torch.int32, pin_memory=self._memory.is_cuda)
        ids, slots, starts, lengths, places = (host.numpy()[part] for part in self._parts)
        slots[:] = spare_slot
        for row, fed in enumerate(rows):
            first = row * self._shape.width
            ids[first : first + len(fed.tokens)] = fed.tokens
            slots[row], starts[row], lengths[row] = fed.slot, fed.start, len(fed.tokens)
        places[: len(wanted)] = [row * self._shape.width + index for row, index in wanted]
        self._memory.copy_(host, non_blocking=True)


class PaddedLayout:
    """Runs rows of any lengths through a decoder's layers, padded to a bucket.

    Parameters
    ----------
    layers : maps padded rows to their hidden states, rows x width x d_model, by all layers or by the first
        so many; what it does on the device depends on their shape alone.
    spare_slot : a slot that is nobody's.
    capture : makes of a function one that does the same with fewer launches.
    """

    def __init__(
        self,
        layers: Callable[[PaddedRows, int | None], Tensor],
        *,
        spare_slot: int,
        device: torch.device,
        capture: Callable[[Run], Run],
    ) -> None:
        self._layers = layers
        self._spare_slot = spare_slot
        self._device = device
        self._capture = capture
        self._captured: dict[Shape, tuple[StaticInputs, Run]] = {}

    def run(
        self, rows: Sequence[Fed], wanted: Sequence[tuple[int, int]], *, num_watched: int | None = None
    ) -> Tensor:
        """Append tokens; see :class:`specwhisper.model.decoder.Passes`."""
        parts = divide([len(row.tokens) for row in rows])
        if len(parts) == 1 or num_watched is not None:
            return self._run(rows, wanted, num_watched=num_watched)
        found, order = [], list[int]()
        for part in parts:
            row_in_part = {row: i for i, row in enumerate(part)}
            asked = [i for i, (row, _) in enumerate(wanted) if row in row_in_part]
            tokens = [(row_in_part[row], index) for row, index in (wanted[i] for i in asked)]
            found.append(self._run([rows[row] for row in part], tokens))
            order += asked
        as_wanted = sorted(range(len(order)), key=order.__getitem__)
        return torch.cat(found).index_select(0, to_device(as_wanted, self._device))

    def _run(
        self, rows: Sequence[Fed], wanted: Sequence[tuple[int, int]], *, num_watched: int | None = None
    ) -> Tensor:
        shape = shape_for(len(rows), max(len(row.tokens) for row in rows))
        if shape.is_bucket and num_watched is None:
            inputs, run = self._bucket(shape)
        else:
            inputs = StaticInputs(shape, self._device)
            run = partial(self._layers, inputs.rows, num_watched)
        inputs.fill(rows, wanted, spare_slot=self._spare_slot)
        return run().flatten(0, 1).index_select(0, inputs.wanted[: len(wanted)])

    def warm_up(self, num_rows: int, width: int) -> None:
        """Meet every bucket that passes of up to so many rows and tokens of each are padded to."""
        most = shape_for(num_rows, width)
        for rows, columns in product(BATCHES, WIDTHS):
            if rows <= most.rows and columns <= most.width:
                self._bucket(Shape(rows, columns))

    def _bucket(self, shape: Shape) -> tuple[StaticInputs, Run]:
        """Give the tensors of a bucket and what runs them, captured when the bucket is first met."""
        if shape not in self._captured:
            inputs = StaticInputs(shape, self._device)
            self._captured[shape] = inputs, self._capture(partial(self._layers, inputs.rows, None))
        return self._captured[shape]
