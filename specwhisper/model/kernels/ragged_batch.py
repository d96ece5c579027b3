"""A batch without padding, as a CPU runs it: its rows follow each other.

The result of a token must not depend on the other tokens of its batch. PyTorch's attention on a CPU sums in
another order for one or two queries (on AMD up to three), for those after the last full 32, for very many,
and where positions do not fill its vectors. On AMD it also splits more than 192 positions at a place that
depends on their number. :class:`Padding` splits and pads the queries so that the order is always the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specwhisper.model.kernels.layer_cache import BatchRow, LayerCache


@dataclass(frozen=True, slots=True)
class Padding:
    """How attention is called, by default without any padding.

    Attributes
    ----------
    min_width, max_width : fewest and most queries in one call for a row; fewer are padded, more are split.
    multiple : the number of positions is rounded up to a multiple of this.
    undivided, full : if more positions than ``undivided`` are needed, ``full`` are read.
    """

    min_width: int = 1
    max_width: int = sys.maxsize
    multiple: int = 1
    undivided: int = sys.maxsize
    full: int = 0

    def positions(self, num_positions: int) -> int:
        """Round a number of positions up."""
        rounded = -(-num_positions // self.multiple) * self.multiple
        return rounded if rounded <= self.undivided else max(rounded, self.full)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of equal length in adjacent slots, or a part of a row: one attention call.

    Attributes
    ----------
    tokens : the group's tokens among those of the batch.
    slots : the rows' slots.
    width, num_queries : tokens of each row, and the same with padding.
    num_positions : positions read of each slot: those of the longest row, with padding.
    mask : added to the scores, rows x 1 x ``num_queries`` x ``num_positions``; ``None`` if every token
        attends to all positions.
    """

    tokens: slice
    slots: slice
    width: int
    num_queries: int
    num_positions: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """Rows of tokens one after the other, ordered by slot; a :class:`ForwardBatch`.

    Attributes
    ----------
    ids, positions : of all tokens.
    groups : the same rows, as attention takes them.
    """

    rows: Sequence[BatchRow]
    ids: Tensor
    positions: Tensor
    groups: Sequence[Group]

    def attend_self(self, cache: LayerCache, qkv: Tensor) -> Tensor:
        """Write keys and values, then attend: tokens x (3 x d_model) to tokens x d_model."""
        parts = cache.split_heads(qkv, 3)
        key_value, offset = parts[:, 1:].permute(1, 2, 0, 3), 0
        for slot, start, tokens in self.rows:
            end = offset + len(tokens)
            cache.self_cache[:, slot, :, start : start + len(tokens)] = key_value[:, :, offset:end]
            offset = end
        attended = [
            _attend(parts[group.tokens, 0], cache.self_cache[:, group.slots, :, : group.num_positions], group)
            for group in self.groups
        ]
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def attend_cross(self, cache: LayerCache, query: Tensor) -> Tensor:
        """Attend to the windows in the slots: tokens x d_model to the same."""
        heads = cache.split_heads(query, 1)[:, 0]
        attended = [
            _attend(heads[group.tokens], cache.cross_cache[:, group.slots], group, is_causal=False)
            for group in self.groups
        ]
        return attended[0] if len(attended) == 1 else torch.cat(attended)


def _attend(query: Tensor, key_value: Tensor, group: Group, *, is_causal: bool = True) -> Tensor:
    """Attend from a group's tokens (tokens x heads x head_size) to its slots."""
    rows = query.to(key_value.dtype).unflatten(0, (-1, group.width)).transpose(1, 2)
    key, value = key_value.unbind()
    mask = group.mask if is_causal else None
    if mask is not None:
        mask = mask.to(query.device)
    if group.num_queries > group.width:
        rows = F.pad(rows, (0, 0, 0, group.num_queries - group.width))
    attended = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask)[:, :, : group.width]
    return attended.transpose(1, 2).reshape(len(query), -1)


def causal_mask(num_positions: int, padding: Padding, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return what each position adds to the scores: 0, or -inf for later positions.

    Rows for padding follow those of the positions.
    """
    size = padding.positions(num_positions)
    shape = (size + padding.min_width, size)
    return torch.full(shape, -torch.inf, dtype=dtype, device=device).triu(1)


def group_rows(rows: Sequence[BatchRow], causal: Tensor, padding: Padding) -> list[Group]:
    """Group rows, which are ordered by slot.

    ``causal`` is :func:`causal_mask` with the same padding.
    """
    groups: list[Group] = []

    def add(slot: int, starts: Sequence[int], width: int) -> None:
        offset = groups[-1].tokens.stop if groups else 0
        num_queries = max(width, padding.min_width)
        num_positions = padding.positions(max(starts) + width)
        groups.append(
            Group(
                tokens=slice(offset, offset + width * len(starts)),
                slots=slice(slot, slot + len(starts)),
                width=width,
                num_queries=num_queries,
                num_positions=num_positions,
                mask=_mask(starts, num_queries, causal[:, :num_positions]),
            )
        )

    first = 0
    while first < len(rows):
        slot, start, tokens = rows[first]
        width, end = len(tokens), first + 1
        if width > padding.max_width:
            for index in range(0, width, padding.max_width):
                add(slot, [start + index], min(padding.max_width, width - index))
        else:
            while end < len(rows) and rows[end].slot == slot + end - first and len(rows[end].tokens) == width:
                end += 1
            add(slot, [row.start for row in rows[first:end]], width)
        first = end
    return groups


def _mask(starts: Sequence[int], num_queries: int, causal: Tensor) -> Tensor | None:
    if num_queries == 1 and all(start + 1 == causal.shape[1] for start in starts):
        return None
    if len(starts) == 1:
        return causal[starts[0] : starts[0] + num_queries]
    rows = [list(range(start, start + num_queries)) for start in starts]
    return causal[torch.tensor(rows, device=causal.device)].unsqueeze(1)
