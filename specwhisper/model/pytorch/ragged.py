"""Batches without padding, for CPUs, Apple's GPUs and device maps: rows follow each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from specwhisper.model.pytorch.cache import BatchRow, LayerCache
from specwhisper.model.pytorch.operations import PlainOperations


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of equal length in adjacent slots: one attention call.

    Attributes
    ----------
    tokens : the group's tokens among those of the batch.
    width : tokens of each row.
    num_positions : positions read of each slot: those of the longest row.
    mask : added to the scores, rows x 1 x ``width`` x ``num_positions``; ``None`` if every token
        attends to all positions.
    """

    tokens: slice
    slots: slice
    width: int
    num_positions: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """Rows of tokens, ordered by slot; a :class:`specwhisper.model.pytorch.cache.ForwardBatch`.

    ``groups``: the same rows, as attention takes them.
    """

    rows: Sequence[BatchRow]
    ids: Tensor
    positions: Tensor
    groups: Sequence[Group]
    operations: ClassVar = PlainOperations()

    def attend_self(self, cache: LayerCache, qkv: Tensor) -> Tensor:
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
    attended = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask)
    return attended.transpose(1, 2).reshape(len(query), -1)


class RaggedRunner:
    """Runs rows of any lengths through layers.

    ``layers``: returns the hidden states of a batch, tokens x d_model, after all layers or the first ones.
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
        # Added to the scores of each position: 0, or -inf for later positions.
        self._causal = torch.full(
            (num_positions, num_positions), -torch.inf, dtype=dtype, device=device
        ).triu(1)

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
            self._groups(by_slot),
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

    def _groups(self, rows: Sequence[BatchRow]) -> list[Group]:
        """Group rows, which are ordered by slot."""
        groups: list[Group] = []
        first = offset = 0
        while first < len(rows):
            slot, _, tokens = rows[first]
            width, end = len(tokens), first + 1
            while end < len(rows) and rows[end].slot == slot + end - first and len(rows[end].tokens) == width:
                end += 1
            starts = [row.start for row in rows[first:end]]
            num_positions = max(starts) + width
            groups.append(
                Group(
                    tokens=slice(offset, offset + width * len(starts)),
                    slots=slice(slot, slot + len(starts)),
                    width=width,
                    num_positions=num_positions,
                    mask=_mask(starts, width, self._causal[:, :num_positions]),
                )
            )
            offset += width * len(starts)
            first = end
        return groups


def _mask(starts: Sequence[int], width: int, causal: Tensor) -> Tensor | None:
    if width == 1 and all(start + 1 == causal.shape[1] for start in starts):
        return None
    if len(starts) == 1:
        return causal[starts[0] : starts[0] + width]
    rows = [list(range(start, start + width)) for start in starts]
    return causal[torch.tensor(rows, device=causal.device)].unsqueeze(1)
