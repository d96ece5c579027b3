"""Keys and values of a decoder layer, slot by slot, and the attention of a pass's tokens over them.

What a token gets shall not depend on how many others are fed beside it. PyTorch's attention on a CPU sums in
another order for one or two queries than for more (up to three on AMD's processors), for as many behind the
last full 32, for very many, and for numbers of positions that do not fill its vectors. On AMD's it also
divides more than 192 positions, and where depends on their number. :class:`Padding` tells how queries are
divided and padded so that the order is always the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Fed(NamedTuple):
    """What one slot is fed in a pass: the tokens, and how many it holds before them."""

    slot: int
    start: int
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Padding:
    """How attention is called.

    Attributes
    ----------
    min_width, max_width : fewest and most queries of a row; it is padded, or divided.
    multiple : what the number of positions is a multiple of.
    undivided : up to so many positions are summed in one go; of more, always ``full`` are read.
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
    """Rows of equal length whose slots lie side by side, or a part of one: one call of attention serves it.

    Attributes
    ----------
    tokens : where the rows' tokens lie among those of the pass.
    slots : the rows' slots.
    width, num_queries : tokens of each row, and the same with padding.
    num_positions : what is read of each slot: as much as the fullest holds after the pass, with padding.
    mask : added to the scores, rows x 1 x ``num_queries`` x ``num_positions``; ``None`` when every token sees
        all it reads.
    """

    tokens: slice
    slots: slice
    width: int
    num_queries: int
    num_positions: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass: rows of tokens, one behind the other without padding, ordered by slot.

    Attributes
    ----------
    slots, starts, lengths : per row: the slot, the tokens it holds, the tokens it appends.
    groups : the same rows, as attention takes them.
    """

    slots: tuple[int, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    groups: tuple[Group, ...]

    @property
    def positions(self) -> Iterator[int]:
        """Where each token stands in its slot."""
        for start, length in zip(self.starts, self.lengths, strict=True):
            yield from range(start, start + length)


def causal_mask(num_positions: int, padding: Padding, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Give what a token at each position, or padding behind it, adds to each score: 0 or -inf."""
    size = padding.positions(num_positions)
    shape = (size + padding.min_width, size)
    return torch.full(shape, -torch.inf, dtype=dtype, device=device).triu(1)


def lay_out(
    slots: Sequence[int],
    starts: Sequence[int],
    lengths: Sequence[int],
    causal: Tensor,
    padding: Padding = Padding(),
) -> Pass:
    """Group the rows of a pass, which are ordered by slot; ``causal`` is of the same padding."""
    groups: list[Group] = []

    def add(slot: int, held: Sequence[int], width: int) -> None:
        offset = groups[-1].tokens.stop if groups else 0
        num_queries = max(width, padding.min_width)
        num_positions = padding.positions(max(held) + width)
        groups.append(
            Group(
                tokens=slice(offset, offset + width * len(held)),
                slots=slice(slot, slot + len(held)),
                width=width,
                num_queries=num_queries,
                num_positions=num_positions,
                mask=_mask(held, num_queries, causal[:, :num_positions]),
            )
        )

    row = 0
    while row < len(slots):
        width, end = lengths[row], row + 1
        if width > padding.max_width:
            for first in range(0, width, padding.max_width):
                add(slots[row], [starts[row] + first], min(padding.max_width, width - first))
        else:
            while end < len(slots) and slots[end] == slots[row] + end - row and lengths[end] == width:
                end += 1
            add(slots[row], starts[row:end], width)
        row = end
    return Pass(tuple(slots), tuple(starts), tuple(lengths), tuple(groups))


def _mask(starts: Sequence[int], num_queries: int, causal: Tensor) -> Tensor | None:
    if num_queries == 1 and all(start + 1 == causal.shape[1] for start in starts):
        return None
    if len(starts) == 1:
        return causal[starts[0] : starts[0] + num_queries]
    rows = [list(range(start, start + num_queries)) for start in starts]
    return causal[torch.tensor(rows, device=causal.device)].unsqueeze(1)


class LayerSlots:
    """One layer's keys and values: of the tokens each slot was fed, and of the window it has heard.

    Both caches are 2 (keys, values) x slots x heads x positions x head size. What lies behind a slot's
    length is overwritten by the next pass.
    """

    def __init__(self, self_cache: Tensor, cross_cache: Tensor) -> None:
        self.self_cache = self_cache
        self.cross_cache = cross_cache
        self._num_heads = self_cache.shape[2]

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.cross_cache.device

    @property
    def bytes_per_slot(self) -> int:
        """Memory one slot takes."""
        return self.self_cache[:, 0].nbytes + self.cross_cache[:, 0].nbytes

    def hear(self, slot: int, key_value: Tensor) -> None:
        """Keep what a window projects to: positions x (2 x d_model)."""
        self.cross_cache[:, slot] = self.split_heads(key_value, 2).permute(1, 2, 0, 3)

    def heard_keys(self, slot: int) -> Tensor:
        """Give the keys of the window in a slot: heads x positions x head_size."""
        return self.cross_cache[0, slot]

    def attend_self(self, qkv: Tensor, forward_pass: Pass) -> Tensor:
        """Keep the tokens' keys and values, then attend: tokens x (3 x d_model) to tokens x d_model."""
        parts = self.split_heads(qkv, 3)
        key_value, offset = parts[:, 1:].permute(1, 2, 0, 3), 0
        for slot, start, length in zip(
            forward_pass.slots, forward_pass.starts, forward_pass.lengths, strict=True
        ):
            kept = key_value[:, :, offset : offset + length]
            self.self_cache[:, slot, :, start : start + length] = kept
            offset += length
        attended = [
            _attend(parts[group.tokens, 0], self.self_cache[:, group.slots, :, : group.num_positions], group)
            for group in forward_pass.groups
        ]
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def attend_cross(self, query: Tensor, forward_pass: Pass) -> Tensor:
        """Attend to the windows that the slots have heard: tokens x d_model to the same."""
        heads = self.split_heads(query, 1)[:, 0]
        attended = [
            _attend(heads[group.tokens], self.cross_cache[:, group.slots], group, is_causal=False)
            for group in forward_pass.groups
        ]
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def split_heads(self, projected: Tensor, num_parts: int) -> Tensor:
        """Cut tokens x (parts x d_model) into tokens x parts x heads x head_size."""
        return projected.view(len(projected), num_parts, self._num_heads, -1)


def _attend(query: Tensor, key_value: Tensor, group: Group, *, is_causal: bool = True) -> Tensor:
    """Attend from a group's tokens (tokens x heads x head_size) to what its slots hold."""
    rows = query.to(key_value.dtype).unflatten(0, (-1, group.width)).transpose(1, 2)
    key, value = key_value.unbind()
    mask = group.mask if is_causal else None
    if mask is not None:
        mask = mask.to(query.device)
    if group.num_queries > group.width:
        rows = F.pad(rows, (0, 0, 0, group.num_queries - group.width))
    attended = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask)[:, :, : group.width]
    return attended.transpose(1, 2).reshape(len(query), -1)
