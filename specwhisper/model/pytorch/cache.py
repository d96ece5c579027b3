"""Keys and values of a decoder layer, and the rows that are appended to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class BatchRow(NamedTuple):
    """Tokens to append to one slot, which holds ``start`` tokens already."""

    slot: int
    start: int
    tokens: Sequence[int]


class LayerCache(NamedTuple):
    """Keys and values of one layer: the tokens of each slot and its encoded window.

    Both are 2 (keys, values) x slots x heads x positions x head size. Later tokens overwrite the positions
    after a slot's length.
    """

    self_cache: Tensor
    cross_cache: Tensor

    @property
    def device(self) -> torch.device:
        return self.cross_cache.device

    @property
    def bytes_per_slot(self) -> int:
        return self.self_cache[:, 0].nbytes + self.cross_cache[:, 0].nbytes

    def write_cross_kv(self, slots: Tensor, key_value: Tensor) -> None:
        """Write windows' keys and values: windows x positions x (2 x d_model)."""
        self.cross_cache[:, slots] = self.split_heads(key_value, 2).permute(2, 0, 3, 1, 4)

    def split_heads(self, projected: Tensor, num_parts: int) -> Tensor:
        """Split ... x (parts x d_model) into ... x parts x heads x head_size."""
        return projected.view(*projected.shape[:-1], num_parts, self.self_cache.shape[2], -1)
