"""Keys and values of a decoder layer, and the batches that attend to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specwhisper.model.pytorch.kernels.quantised import quantise_cache
from specwhisper.types import CROSS_CACHES

CROSS_CACHE_DTYPES = dict(zip(CROSS_CACHES, (torch.int8, torch.float8_e4m3fn), strict=True))


class BatchRow(NamedTuple):
    """Tokens to append to one slot, which holds ``start`` tokens already."""

    slot: int
    start: int
    tokens: Sequence[int]


class LayerCache:
    """Keys and values of one layer: the tokens of each slot and its encoded window.

    Later tokens overwrite the positions after a slot's length.

    Parameters
    ----------
    self_cache, cross_cache : 2 (keys, values) x slots x heads x positions x head size. If their types differ,
        the cross-attention cache has 8 bits and a scale for each head and position.
    """

    def __init__(self, self_cache: Tensor, cross_cache: Tensor) -> None:
        self.self_cache = self_cache
        self.cross_cache = cross_cache
        self.cross_scales: Tensor | None = None
        if cross_cache.dtype != self_cache.dtype:
            self.cross_scales = torch.zeros(
                cross_cache.shape[:-1], dtype=torch.float16, device=cross_cache.device
            )

    @property
    def device(self) -> torch.device:
        """The device of both caches."""
        return self.cross_cache.device

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot."""
        caches = (self.self_cache, self.cross_cache, self.cross_scales)
        return sum(cache[:, 0].nbytes for cache in caches if cache is not None)

    def write_cross_kv(self, slots: Tensor, key_value: Tensor) -> None:
        """Write windows' keys and values: windows x positions x (2 x d_model)."""
        parts = self.split_heads(key_value, 2).permute(2, 0, 3, 1, 4)
        if self.cross_scales is None:
            self.cross_cache[:, slots] = parts
        else:
            self.cross_cache[:, slots], self.cross_scales[:, slots] = quantise_cache(
                parts, self.cross_cache.dtype
            )

    def cross_keys(self, slot: int) -> Tensor:
        """Return the keys of the window in a slot: heads x positions x head_size."""
        keys = self.cross_cache[0, slot]
        if self.cross_scales is None:
            return keys
        return (keys.float() * self.cross_scales[0, slot, :, :, None].float()).to(self.self_cache.dtype)

    def split_heads(self, projected: Tensor, num_parts: int) -> Tensor:
        """Split ... x (parts x d_model) into ... x parts x heads x head_size."""
        return projected.view(*projected.shape[:-1], num_parts, self.self_cache.shape[2], -1)


class ForwardBatch(Protocol):
    """The tokens of a forward pass, and their attention."""

    @property
    def is_fused(self) -> bool:
        """Whether kernels join projections with what comes before or after them."""

    @property
    def ids(self) -> Tensor:
        """Token ids."""

    @property
    def positions(self) -> Tensor:
        """Position of each token in its slot."""

    def attend_self(self, cache: LayerCache, qkv: Tensor) -> Tensor:
        """Write keys and values, then attend: tokens x (3 x d_model) to tokens x d_model."""

    def attend_cross(self, cache: LayerCache, query: Tensor) -> Tensor:
        """Attend to the windows in the slots: tokens x d_model to the same."""
