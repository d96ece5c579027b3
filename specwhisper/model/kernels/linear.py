"""Linear layers for few rows on a CPU: weights packed for oneDNN, or of one byte.

A decoder's forward pass mostly waits for its weights. PyTorch's plain kernels read them again and again for a
handful of rows: five rows of whisper-small's projection cost 2.4 times as much as one. Packed once for
oneDNN, five rows cost a fifth more than one. Small float32 matrices stay unpacked, because there the search
for the packed kernel costs more than it saves. The measurements are in docs/performance-log.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import cast

import torch
from torch import Tensor, nn

from specwhisper.model.compat import (
    HAS_BFLOAT16,
    HAS_ONEDNN,
    multiply_int8,
    multiply_packed,
    multiply_packed_int8,
    pack_int8_weights,
    pack_weights,
)

PACKED_FOR_ROWS = 32  # the packing that oneDNN chooses for 32 rows suits one row as well as forty
MIN_PACKED_WEIGHTS = 2**19
MAX_BFLOAT16_ROWS = 32  # more rows are summed in another order
LARGEST_INT8 = 127  # symmetric: -128 is not used
TINY = 1e-12  # replaces the largest value of a row of zeros


def pack_linears(module: nn.Module, *, is_int8: bool, leave: Collection[str] = ()) -> None:
    """Replace a module's linear layers by the fastest for a few rows on this CPU.

    Parameters
    ----------
    is_int8 : round the weights to one byte; otherwise they keep their type.
    leave : names of layers that multiply many rows at once; they stay unpacked, unless they are rounded.
    """
    for name, child in module.named_children():
        if not isinstance(child, nn.Linear):
            pack_linears(child, is_int8=is_int8, leave=leave)
        elif is_int8:
            setattr(module, name, Int8Linear(child))
        elif name not in leave and _gains_by_packing(child.weight):
            setattr(module, name, PackedLinear(child))


def _gains_by_packing(weight: Tensor) -> bool:
    if weight.dtype is torch.bfloat16:  # PyTorch always uses oneDNN for it, and packs on every call
        return HAS_BFLOAT16
    return HAS_ONEDNN and weight.dtype is torch.float32 and weight.numel() >= MIN_PACKED_WEIGHTS


def is_batch_invariant(module: nn.Module, *, leave: Collection[str] = ()) -> bool:
    """Return whether a row's result is the same, to the last bit, in any batch.

    That holds for :class:`PackedLinear` and :class:`Int8Linear`. PyTorch's own layers sum in another order
    for a few rows than for many.
    """
    return not any(
        isinstance(child, nn.Linear) and name.rpartition(".")[2] not in leave
        for name, child in module.named_modules()
    )


class PackedLinear(nn.Module):
    """A linear layer in float32 or bfloat16 whose weights only oneDNN can read."""

    packed: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.bias = linear.bias
        self.register_buffer("packed", pack_weights(linear.weight.detach(), PACKED_FOR_ROWS))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map rows x inputs to rows x outputs."""
        if hidden.dtype is torch.bfloat16 and len(hidden) > MAX_BFLOAT16_ROWS:
            return torch.cat([self._multiply(rows) for rows in hidden.split(MAX_BFLOAT16_ROWS)])
        return self._multiply(hidden)

    def _multiply(self, hidden: Tensor) -> Tensor:
        # A single long row is summed in another order than several: multiply it twice.
        rows = hidden.expand(2, -1) if len(hidden) == 1 else hidden
        return multiply_packed(rows, self.packed, self.bias)[: len(hidden)]


class Int8Linear(nn.Module):
    """A linear layer with weights of one byte and float32 outputs.

    The weights of each output share a scale, found once. The activations of each row share another, found in
    each forward pass. Products and sums are integers and thus exact, whatever the other rows are.
    """

    scale: Tensor
    bias: Tensor
    values: Tensor
    zero_points: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        values, scale = quantise_rows(linear.weight.detach().float())
        bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach().float()
        self.is_packed = HAS_ONEDNN and values.numel() >= MIN_PACKED_WEIGHTS
        # Packed weights cannot be compared: two layers are equal if their digests are.
        digest = hashlib.blake2b(values.numpy().tobytes(), digest_size=16).digest()
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))
        self.register_buffer("scale", scale.flatten() / LARGEST_INT8)
        self.register_buffer("bias", bias)
        self.register_buffer("zero_points", torch.zeros(linear.out_features, dtype=torch.int64))
        if self.is_packed:
            values = pack_int8_weights(values)
        self.register_buffer("values", values, persistent=not self.is_packed)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map ... x inputs to ... x outputs."""
        rows = hidden.flatten(0, -2).float()
        largest = rows.abs().amax(dim=-1, keepdim=True).clamp_(min=TINY)
        rows = rows / largest
        if self.is_packed:
            # The packed kernel takes unsigned activations: 128 is zero, and the half rounds.
            unsigned = torch.add(128.5, rows, alpha=LARGEST_INT8).to(torch.uint8)
            products = multiply_packed_int8(unsigned, self.values, self.scale, self.zero_points)
        else:
            whole = rows.mul_(LARGEST_INT8).round_().to(torch.int8)
            products = multiply_int8(whole, self.values.t()) * self.scale
        outputs = torch.addcmul(self.bias, products, largest).unflatten(0, hidden.shape[:-1])
        return cast(Tensor, outputs)


class Int8Embedding(nn.Module):
    """An embedding of one byte, a scale for each token, and float32 outputs."""

    values: Tensor
    scale: Tensor

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        values, scale = quantise_rows(embedding.weight.detach().float())
        self.register_buffer("values", values)
        self.register_buffer("scale", scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings of token ids: ... to ... x d_model."""
        return self.values[ids] * self.scale[ids]


def quantise_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to integers up to 127; return int8 values and float32 scales."""
    scale = rows.abs().amax(dim=-1, keepdim=True).clamp_(min=TINY).div_(LARGEST_INT8)
    return (rows / scale).round_().to(torch.int8), scale
