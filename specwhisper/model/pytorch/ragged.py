"""Batches without padding, for CPUs, Apple's GPUs and device maps: rows follow each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from specwhisper.model.pytorch.cache import BatchRow, LayerCache
from specwhisper.model.pytorch.operations import PlainOperations, to_device


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """Rows of tokens; a :class:`specwhisper.model.pytorch.cache.ForwardBatch`.

    ``causal``: added to the scores of each position: 0, or -inf for later positions.
    """

    rows: Sequence[BatchRow]
    ids: Tensor
    positions: Tensor
    causal: Tensor
    operations: ClassVar = PlainOperations()

    @classmethod
    def of(cls, rows: Sequence[BatchRow], causal: Tensor) -> RaggedBatch:
        ids = [token for row in rows for token in row.tokens]
        positions = [row.start + index for row in rows for index in range(len(row.tokens))]
        return cls(rows, to_device(ids, causal.device), to_device(positions, causal.device), causal)

    def attend_self(self, cache: LayerCache, qkv: Tensor) -> Tensor:
        attended = []
        for (slot, start, tokens), row in self._by_row(cache.split_heads(qkv, 3)):
            end = start + len(tokens)
            query, *key_value = row.permute(1, 2, 0, 3)  # heads x tokens x head size
            cache.self_cache[:, slot, :, start:end] = torch.stack(key_value)
            mask = self.causal[start:end, :end].to(query.device) if len(tokens) > 1 else None
            attended.append(_attend(query, cache.self_cache[:, slot, :, :end], mask))
        return torch.cat(attended)

    def attend_cross(self, cache: LayerCache, query: Tensor) -> Tensor:
        rows = self._by_row(cache.split_heads(query, 1)[:, 0])
        return torch.cat(
            [_attend(row.transpose(0, 1), cache.cross_cache[:, slot]) for (slot, *_), row in rows]
        )

    def _by_row(self, values: Tensor) -> Iterator[tuple[BatchRow, Tensor]]:
        """Yield each row with its tokens' values."""
        return zip(self.rows, values.split([len(row.tokens) for row in self.rows]), strict=True)


def _attend(query: Tensor, key_value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attend from a row's tokens (heads x tokens x head size) to its slot: tokens x d_model."""
    key, value = key_value[:, None].unbind()
    attended = F.scaled_dot_product_attention(query[None], key, value, attn_mask=mask)
    return attended[0].transpose(0, 1).flatten(1)
