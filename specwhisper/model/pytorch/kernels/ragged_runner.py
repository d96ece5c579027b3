"""Run batches without padding, on CPUs and with device maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specwhisper.model.pytorch.kernels.layer_cache import BatchRow
from specwhisper.model.pytorch.kernels.ragged_batch import RaggedBatch, causal_mask, group_rows


class RaggedRunner:
    """Runs rows of any lengths through layers, as CPUs and device maps do.

    Parameters
    ----------
    layers : returns the hidden states of a batch, tokens x d_model, after all layers or the first ones.
    """

    def __init__(
        self,
        layers: Callable[[RaggedBatch, int | None], Tensor],
        *,
        num_positions: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._layers = layers
        self._device = device
        self._causal = causal_mask(num_positions, dtype, device)

    def run(
        self, rows: Sequence[BatchRow], wanted: Sequence[tuple[int, int]], *, num_layers: int | None = None
    ) -> Tensor:
        """Append tokens to slots and return the hidden states of some of them.

        Parameters
        ----------
        rows : at most one for each slot.
        wanted : the tokens whose states are returned, as (row, index in the row).
        num_layers : run only the first layers.

        Returns
        -------
        len(wanted) x d_model, of the last layer that ran.
        """
        order = sorted(range(len(rows)), key=lambda index: rows[index].slot)
        by_slot = [rows[index] for index in order]
        ids = [token for row in by_slot for token in row.tokens]
        positions = [row.start + index for row in by_slot for index in range(len(row.tokens))]
        batch = RaggedBatch(
            by_slot,
            torch.tensor(ids, device=self._device),
            torch.tensor(positions, device=self._device),
            group_rows(by_slot, self._causal),
        )
        hidden = self._layers(batch, num_layers)
        offsets, offset = [0] * len(rows), 0
        for index in order:
            offsets[index] = offset
            offset += len(rows[index].tokens)
        indices = [offsets[row] + index for row, index in wanted]
        if indices != list(range(offset)):
            hidden = hidden[torch.tensor(indices, device=hidden.device)]
        return hidden
