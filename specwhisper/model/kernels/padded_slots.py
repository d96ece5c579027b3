"""Keys and values of a decoder layer on a GPU, written and read where they lie, with shapes that stay."""

from __future__ import annotations

import torch
from torch import Tensor

from specwhisper.model.kernels.padded_pass import PaddedRows
from specwhisper.model.kernels.triton_attention import (
    quantise_cache,
    slot_attention,
    slot_attention_reference,
    supports,
    write_slots,
)
from specwhisper.types import CROSS_CACHES

CROSS_CACHE_DTYPES = dict(zip(CROSS_CACHES, (torch.int8, torch.float8_e4m3fn), strict=True))


class PaddedSlots:
    """One layer's slots, for rows padded to equal width.

    Where Triton's kernels do not serve a cache, torch does the same by copying what it reads; neither waits
    for the device.

    Parameters
    ----------
    self_cache, cross_cache : 2 (keys, values) x slots x heads x positions x head size. The last slot is
        nobody's: padding is written there. A cross-attention cache of 8 bits rounds what is heard.
    """

    def __init__(self, self_cache: Tensor, cross_cache: Tensor) -> None:
        self.self_cache = self_cache
        self.cross_cache = cross_cache
        self._num_heads = self_cache.shape[2]
        self._scales: Tensor | None = None
        if cross_cache.dtype != self_cache.dtype:
            self._scales = torch.zeros(cross_cache.shape[:-1], dtype=torch.float16, device=cross_cache.device)

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.cross_cache.device

    @property
    def bytes_per_slot(self) -> int:
        """Memory one slot takes."""
        caches = (self.self_cache, self.cross_cache, self._scales)
        return sum(cache[:, 0].nbytes for cache in caches if cache is not None)

    def hear(self, slot: int, key_value: Tensor) -> None:
        """Keep what a window projects to: positions x (2 x d_model)."""
        parts = self._split_heads(key_value, 2).permute(1, 2, 0, 3)
        if self._scales is None:
            self.cross_cache[:, slot] = parts
        else:
            self.cross_cache[:, slot], self._scales[:, slot] = quantise_cache(parts, self.cross_cache.dtype)

    def heard_keys(self, slot: int) -> Tensor:
        """Give the keys of the window in a slot: heads x positions x head_size."""
        keys = self.cross_cache[0, slot]
        if self._scales is None:
            return keys
        return (keys.float() * self._scales[0, slot, :, :, None].float()).to(self.self_cache.dtype)

    def attend_self(self, qkv: Tensor, rows: PaddedRows) -> Tensor:
        """Keep the tokens' keys and values, then attend: ... x (3 x d_model) to ... x d_model."""
        parts = self._split_heads(qkv, 3)
        query, key_value, cache = parts[:, :, 0], parts[:, :, 1:], self.self_cache
        if supports(cache):
            write_slots(key_value, cache, rows.slots, rows.starts, rows.lengths)
            return slot_attention(query, cache, rows.slots, rows.starts)
        write_with_padding(key_value, cache, rows)
        return slot_attention_reference(query, cache, rows.slots, rows.starts)

    def attend_cross(self, query: Tensor, rows: PaddedRows) -> Tensor:
        """Attend to the windows that the slots have heard: rows x width x d_model to the same."""
        heads, cache = self._split_heads(query, 1)[:, :, 0], self.cross_cache
        if supports(cache):
            return slot_attention(heads, cache, rows.slots, scales=self._scales)
        return slot_attention_reference(heads, cache, rows.slots, scales=self._scales)

    def _split_heads(self, projected: Tensor, num_parts: int) -> Tensor:
        """Cut ... x (parts x d_model) into ... x parts x heads x head_size."""
        return projected.view(*projected.shape[:-1], num_parts, self._num_heads, -1)


def write_with_padding(key_value: Tensor, cache: Tensor, rows: PaddedRows) -> None:
    """Write each row's keys and values into its slot, and those of padding into the last one.

    Parameters
    ----------
    key_value : rows x width x 2 (key, value) x heads x head_size.
    """
    last_slot, last_position = cache.shape[1] - 1, cache.shape[3] - 1
    positions = rows.positions
    is_token = (positions < (rows.starts + rows.lengths)[:, None]) & (positions <= last_position)
    slots = rows.slots[:, None].expand_as(positions).where(is_token, last_slot)
    cache[:, slots, :, positions.clamp(max=last_position)] = key_value
