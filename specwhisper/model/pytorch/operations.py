"""A decoder layer's keys and values, and its operations by PyTorch alone.

They run unless Triton's kernels agree with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

# Tokens of one row that attend together: the fewest queries that tensor cores multiply. It is the same in
# every pass, so a token's attention does not depend on which rows share the pass.
BLOCK_TOKENS = 16


def logits_device(model_device: torch.device) -> torch.device | None:
    """Return the GPU on which tokens are chosen; ``None`` for the CPU, and for a model on ``mps``.

    Sampling takes float64, which ``mps`` lacks. The host and such a GPU have one memory, so copies are cheap.
    """
    return model_device if model_device.type == "cuda" else None


def to_device(numbers: ArrayLike, device: torch.device) -> Tensor:
    """Make a tensor on a device without waiting for a GPU's earlier work."""
    if device.type != "cuda":
        return torch.tensor(numbers, device=device)
    # The copy from pinned memory is queued on the stream; torch keeps the memory until then.
    return torch.tensor(numbers, pin_memory=True).to(device, non_blocking=True)


def to_host(values: Tensor) -> Callable[[], NDArray[Any]]:
    """Start a copy to the host; return a function that waits for it, on any thread."""
    if values.device.type != "cuda":
        return lambda: values.numpy(force=True)
    copied = values.to("cpu", non_blocking=True)  # into pinned memory
    is_copied = torch.cuda.Event()
    is_copied.record(torch.cuda.current_stream(values.device))

    def wait() -> NDArray[Any]:
        is_copied.synchronize()
        return copied.numpy()

    return wait


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


class Places(NamedTuple):
    """Where the tokens of a pass are: int32 tensors on the device.

    Attributes
    ----------
    slots, positions : each token's slot, and its position there.
    firsts, counts : the first token of each block, and its number of tokens: at most 16, all of one row.
    row_firsts : the first token of the row that each block belongs to.
    """

    slots: Tensor
    positions: Tensor
    firsts: Tensor
    counts: Tensor
    row_firsts: Tensor


class PlainOperations:
    """PyTorch's attention and projections. No shape and no launch depends on the numbers in ``places``."""

    def norm_linear(
        self,
        hidden: Tensor,
        norm: nn.LayerNorm,
        linear: nn.Linear,
        *,
        gelu: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        """Normalise tokens, then project them: tokens x inputs to tokens x outputs.

        Parameters
        ----------
        gelu : apply the exact GELU to the result.
        out : memory of the result, of any type; by default new memory, of the type of ``hidden``.
        """
        projected: Tensor = linear(norm(hidden))
        projected = F.gelu(projected) if gelu else projected
        return projected if out is None else out.copy_(projected)

    def linear_add(self, values: Tensor, linear: nn.Linear, hidden: Tensor) -> Tensor:
        """Project tokens and add the result to their hidden states."""
        projected: Tensor = linear(values)
        return hidden + projected

    def attend_self(self, qkv: Tensor, cache: Tensor, places: Places) -> Tensor:
        """Write each token's keys and values into its slot, then attend to them.

        Parameters
        ----------
        qkv : tokens x 3 (query, key, value) x heads x head_size, contiguous.
        cache : 2 (keys, values) x slots x heads x positions x head_size, of the same type, with any strides
            as long as the last dimension is contiguous.

        Returns
        -------
        tokens x (heads x head_size). What is in the rows of padding is undefined.
        """
        cache[:, places.slots, :, places.positions] = qkv[:, 1:]
        last_seen = _by_block(places.positions, places)[:, None, :, None]
        is_seen = torch.arange(cache.shape[3], device=cache.device) <= last_seen
        return _attend(qkv[:, 0], cache, places, is_seen)

    def attend_cross(self, query: Tensor, cache: Tensor, places: Places) -> Tensor:
        """Attend from each token to every position in its slot.

        Parameters
        ----------
        query : tokens x heads x head_size, contiguous.
        cache : see :meth:`attend_self`.

        Returns
        -------
        tokens x (heads x head_size). What is in the rows of padding is undefined.
        """
        return _attend(query, cache, places)


def _attend(query: Tensor, cache: Tensor, places: Places, is_seen: Tensor | None = None) -> Tensor:
    """Attend from each block of tokens to a copy of its slot."""
    key, value = cache[:, places.slots[places.firsts]].unbind()
    by_block = _by_block(query, places).transpose(1, 2)
    attended = F.scaled_dot_product_attention(by_block, key, value, attn_mask=is_seen)
    num_tokens, number = len(query), torch.arange(BLOCK_TOKENS, device=query.device)
    tokens = places.firsts[:, None] + number
    tokens = tokens.masked_fill(number >= places.counts[:, None], num_tokens)  # padding goes into a spare row
    output = attended.new_zeros(num_tokens + 1, query.shape[1] * query.shape[2])
    output[tokens.flatten()] = attended.transpose(1, 2).flatten(2).flatten(0, 1)
    return output[:num_tokens]


def _by_block(values: Tensor, places: Places) -> Tensor:
    """Return tokens' values as blocks x 16 x ...; what follows a block's tokens is not its own."""
    tokens = places.firsts[:, None] + torch.arange(BLOCK_TOKENS, device=values.device)
    return values[tokens.clamp(max=len(values) - 1)]
