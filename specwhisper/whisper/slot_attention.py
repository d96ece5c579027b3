"""Keys and values of a decoder layer, slot by slot, and the attention of a pass's tokens over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of equal length whose slots lie side by side: one call of attention serves them all.

    Attributes
    ----------
    tokens : where the rows' tokens lie among those of the pass.
    slots : the rows' slots.
    width : tokens of each row.
    longest : tokens in the fullest of the slots after the pass.
    mask : added to the scores, rows x 1 x width x ``longest``; ``None`` when every token sees all it reads.
    """

    tokens: slice
    slots: slice
    width: int
    longest: int
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


def lay_out(slots: Sequence[int], starts: Sequence[int], lengths: Sequence[int], causal: Tensor) -> Pass:
    """Group the rows of a pass, which are ordered by slot.

    Parameters
    ----------
    causal : what a token at each position adds to its score of each position: 0 or -inf.
    """
    groups, row, offset = [], 0, 0
    while row < len(slots):
        width, end = lengths[row], row + 1
        while end < len(slots) and slots[end] == slots[row] + end - row and lengths[end] == width:
            end += 1
        held, longest = starts[row:end], max(starts[row:end]) + width
        groups.append(
            Group(
                tokens=slice(offset, offset + width * len(held)),
                slots=slice(slots[row], slots[row] + len(held)),
                width=width,
                longest=longest,
                mask=_mask(held, width, causal[:, :longest]),
            )
        )
        row, offset = end, offset + width * len(held)
    return Pass(tuple(slots), tuple(starts), tuple(lengths), tuple(groups))


def _mask(starts: Sequence[int], width: int, causal: Tensor) -> Tensor | None:
    if width == 1 and min(starts) == max(starts):
        return None
    if len(starts) == 1:
        return causal[starts[0] : starts[0] + width]
    positions = [range(start, start + width) for start in starts]
    return causal[torch.tensor([list(row) for row in positions], device=causal.device)].unsqueeze(1)


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
    def bytes_per_slot(self) -> int:
        """Memory one slot takes."""
        return self.self_cache[:, 0].nbytes + self.cross_cache[:, 0].nbytes

    def hear(self, slot: int, key_value: Tensor) -> None:
        """Keep what a window projects to: positions x (2 x d_model)."""
        self.cross_cache[:, slot] = self.split_heads(key_value, 2).permute(1, 2, 0, 3)

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
            _attend(parts[group.tokens, 0], self.self_cache[:, group.slots, :, : group.longest], group)
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
    rows = query.unflatten(0, (-1, group.width)).transpose(1, 2)
    key, value = key_value.unbind()
    mask = group.mask if is_causal else None
    if mask is not None:
        mask = mask.to(query.device)
    attended = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask)
    return attended.transpose(1, 2).flatten(2).flatten(0, 1)
