"""A batch padded to equal width, as a GPU runs it.

Nothing waits for the device, and no shape depends on data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specwhisper.model.pytorch.kernels.layer_cache import LayerCache
from specwhisper.model.pytorch.kernels.triton_attention import (
    slot_attention,
    slot_attention_reference,
    supports,
    write_slots,
)


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Rows of equal width, on the device; a :class:`ForwardBatch`.

    Where Triton's kernels do not support a cache, torch does the same with a copy of each slot it reads.

    Attributes
    ----------
    ids : rows x width; any id where there is padding.
    slots, starts, lengths : per row: the slot, the tokens it holds, the tokens to append.
    num_positions : most positions of a slot. Padding may lie after them.
    """

    ids: Tensor
    slots: Tensor
    starts: Tensor
    lengths: Tensor
    num_positions: int

    @property
    def unclamped_positions(self) -> Tensor:
        """Position of each token in its slot: rows x width, padding after the last."""
        return self.starts[:, None] + torch.arange(self.ids.shape[1], device=self.ids.device)

    @property
    def positions(self) -> Tensor:
        """The same with padding moved to the last position, where it has an embedding."""
        return self.unclamped_positions.clamp(max=self.num_positions - 1)

    def attend_self(self, cache: LayerCache, qkv: Tensor) -> Tensor:
        """Write keys and values, then attend: ... x (3 x d_model) to ... x d_model."""
        parts = cache.split_heads(qkv, 3)
        query, key_value = parts[:, :, 0], parts[:, :, 1:]
        if supports(cache.self_cache):
            write_slots(key_value, cache.self_cache, self.slots, self.starts, self.lengths)
            return slot_attention(query, cache.self_cache, self.slots, self.starts)
        self.write(key_value, cache.self_cache)
        return slot_attention_reference(query, cache.self_cache, self.slots, self.starts)

    def attend_cross(self, cache: LayerCache, query: Tensor) -> Tensor:
        """Attend to the windows in the slots: rows x width x d_model to the same."""
        heads = cache.split_heads(query, 1)[:, :, 0]
        attend = slot_attention if supports(cache.cross_cache) else slot_attention_reference
        return attend(heads, cache.cross_cache, self.slots, scales=cache.cross_scales)

    def write(self, key_value: Tensor, self_cache: Tensor) -> None:
        """Write keys and values into the rows' slots, and those of padding into the last.

        Parameters
        ----------
        key_value : rows x width x 2 (key, value) x heads x head_size.
        """
        last_slot, last_position = self_cache.shape[1] - 1, self_cache.shape[3] - 1
        positions = self.unclamped_positions
        is_token = (positions < (self.starts + self.lengths)[:, None]) & (positions <= last_position)
        slots = self.slots[:, None].expand_as(positions).where(is_token, last_slot)
        self_cache[:, slots, :, positions.clamp(max=last_position)] = key_value
