"""Batches without padding, for CPUs, Apple's GPUs and device maps: rows follow each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specwhisper.model.pytorch.operations import BatchRow, LayerCache, PlainOperations, to_device


class Group(NamedTuple):
    """Rows of equal length in adjacent slots: one attention call.

    Attributes
    ----------
    tokens : the group's tokens among those of the batch.
    num_positions : positions read of each slot: those of the longest row.
    mask : added to the scores; ``None`` if every token attends to all positions.
    """

    tokens: slice
    slots: slice
    num_positions: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """The tokens of a forward pass, row after row, ordered by slot, and their attention.

    ``operations``: those of layers beside attention.
    """

    rows: Sequence[BatchRow]
    ids: Tensor
    positions: Tensor
    groups: Sequence[Group]
    operations: ClassVar = PlainOperations()

    @classmethod
    def of(cls, rows: Sequence[BatchRow], causal: Tensor) -> RaggedBatch:
        """Make a batch of rows; ``causal`` is added to scores: 0, or -inf for later positions."""
        ids = [token for row in rows for token in row.tokens]
        positions = [row.start + index for row in rows for index in range(len(row.tokens))]
        on_device = to_device(positions, causal.device)
        return cls(rows, to_device(ids, causal.device), on_device, list(_groups(rows, on_device, causal)))

    def attend_self(self, cache: LayerCache, qkv: Tensor) -> Tensor:
        """Write keys and values, then attend: tokens x (3 x d_model) to tokens x d_model."""
        parts, first = cache.split_heads(qkv, 3), 0
        key_value = parts[:, 1:].permute(1, 2, 0, 3)
        for slot, start, tokens in self.rows:
            end = first + len(tokens)
            cache.self_cache[:, slot, :, start : start + len(tokens)] = key_value[:, :, first:end]
            first = end
        return torch.cat(
            [
                _attend(parts[tokens, 0], cache.self_cache[:, slots, :, :num_positions], mask)
                for tokens, slots, num_positions, mask in self.groups
            ]
        )

    def attend_cross(self, cache: LayerCache, query: Tensor) -> Tensor:
        """Attend to the windows in the slots: tokens x d_model to the same."""
        heads = cache.split_heads(query, 1)[:, 0]
        return torch.cat(
            [_attend(heads[group.tokens], cache.cross_cache[:, group.slots]) for group in self.groups]
        )


def _groups(rows: Sequence[BatchRow], positions: Tensor, causal: Tensor) -> Iterator[Group]:
    first = first_token = 0
    while first < len(rows):
        slot, _, tokens = rows[first]
        width, end = len(tokens), first + 1
        while end < len(rows) and rows[end].slot == slot + end - first and len(rows[end].tokens) == width:
            end += 1
        of_group = slice(first_token, first_token + width * (end - first))
        num_positions = width + max(row.start for row in rows[first:end])
        mask = None
        if width > 1 or any(row.start + 1 < num_positions for row in rows[first:end]):
            mask = causal[positions[of_group], :num_positions].unflatten(0, (-1, 1, width))
        yield Group(of_group, slice(slot, slot + end - first), num_positions, mask)
        first, first_token = end, of_group.stop


def _attend(query: Tensor, key_value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attend from a group's tokens (tokens x heads x head size) to its slots."""
    key, value = key_value.unbind()
    rows = query.unflatten(0, (len(key), -1)).transpose(1, 2)
    mask = None if mask is None else mask.to(query.device)
    attended = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask)
    return attended.transpose(1, 2).reshape(len(query), -1)
