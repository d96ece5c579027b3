"""Passes as a CPU runs them: rows one behind the other without padding, attended to group by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specwhisper.model.kernels.slot_attention import Fed, Padding, Pass, causal_mask, lay_out


class RaggedLayout:
    """Runs rows of any lengths through a decoder's layers.

    Parameters
    ----------
    layers : maps ids and positions of all tokens to their hidden states, tokens x d_model; of all layers, or
        of the first so many.
    """

    def __init__(
        self,
        layers: Callable[[Tensor, Tensor, Pass, int | None], Tensor],
        *,
        num_positions: int,
        padding: Padding,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._layers = layers
        self._padding = padding
        self._device = device
        self._causal = causal_mask(num_positions, padding, dtype, device)

    def run(
        self, rows: Sequence[Fed], wanted: Sequence[tuple[int, int]], *, num_watched: int | None = None
    ) -> Tensor:
        """Append tokens; see :class:`specwhisper.model.decoder.Passes`."""
        order = sorted(range(len(rows)), key=lambda row: rows[row].slot)
        slots, starts, tokens = zip(*(rows[row] for row in order), strict=True)
        forward_pass = lay_out(slots, starts, [len(row) for row in tokens], self._causal, self._padding)
        ids = torch.tensor([token for row in tokens for token in row], device=self._device)
        positions = torch.tensor(list(forward_pass.positions), device=self._device)
        hidden = self._layers(ids, positions, forward_pass, num_watched)
        offsets, offset = [0] * len(rows), 0
        for row in order:
            offsets[row] = offset
            offset += len(rows[row].tokens)
        places = [offsets[row] + index for row, index in wanted]
        if places != list(range(offset)):
            hidden = hidden[torch.tensor(places, device=hidden.device)]
        return hidden
