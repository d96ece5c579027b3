"""Linear layers as a CPU multiplies few rows fastest: weights in oneDNN's order, of four, two or one byte.

A step of a decoder mostly waits for its weights. PyTorch's plain kernels read them again and again for a
handful of rows (five rows of whisper-small's projection cost 2.4 times as much as one); packed once for
oneDNN, five rows cost a fifth more than one. Small float32 matrices stay as they are: finding the packed
kernel costs more than it saves there. Measured in docs/performance-log.md.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Collection
from typing import cast

import torch
from torch import Tensor, nn

PACKED_FOR_ROWS = 32  # the order that oneDNN chooses for so many suits one row as well as forty
MIN_PACKED_WEIGHTS = 2**19
MAX_EVEN_ROWS = 32  # more in bfloat16 are summed in another order
LARGEST_INT8 = 127  # -128 is left out, so that both signs reach as far
TINY = 1e-12  # stands for the largest of a row of zeros
IS_X86 = platform.machine() in ("x86_64", "AMD64")
HAS_ONEDNN = torch.backends.mkldnn.is_available() and IS_X86
HAS_BFLOAT16 = HAS_ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported()
# Older x86 processors sum products of bytes in 16 bits, which overflow.
SUMS_BYTES = not IS_X86 or torch.cpu._is_vnni_supported()


def pack_linears(module: nn.Module, *, is_int8: bool, leave: Collection[str] = ()) -> None:
    """Replace the linear layers below a module by what multiplies a few rows fastest on this CPU.

    Parameters
    ----------
    is_int8 : whether weights are rounded to one byte; otherwise they keep their type.
    leave : names of layers that see many rows at once and stay as they are, unless they are rounded.
    """
    for name, child in module.named_children():
        if not isinstance(child, nn.Linear):
            pack_linears(child, is_int8=is_int8, leave=leave)
        elif is_int8:
            setattr(module, name, Int8Linear(child))
        elif name not in leave and _gains_by_packing(child.weight):
            setattr(module, name, PackedLinear(child))


def _gains_by_packing(weight: Tensor) -> bool:
    if weight.dtype is torch.bfloat16:  # PyTorch uses oneDNN for it in any case, and packs on every call
        return HAS_BFLOAT16
    return HAS_ONEDNN and weight.dtype is torch.float32 and weight.numel() >= MIN_PACKED_WEIGHTS


def is_even(module: nn.Module, *, leave: Collection[str] = ()) -> bool:
    """Tell whether what a row gets from the linear layers below a module does not depend on its company.

    It does not in :class:`PackedLinear` and :class:`Int8Linear`; PyTorch's own sum in another order for a few
    rows than for many.
    """
    return not any(
        isinstance(child, nn.Linear) and name.rpartition(".")[2] not in leave
        for name, child in module.named_modules()
    )


class PackedLinear(nn.Module):
    """A linear layer in float32 or bfloat16 whose weights only oneDNN can read."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.bias = linear.bias
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), PACKED_FOR_ROWS)
        self.register_buffer("packed", packed)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map rows x inputs to rows x outputs."""
        if hidden.dtype is torch.bfloat16 and len(hidden) > MAX_EVEN_ROWS:
            return torch.cat([self._multiply(rows) for rows in hidden.split(MAX_EVEN_ROWS)])
        return self._multiply(hidden)

    def _multiply(self, hidden: Tensor) -> Tensor:
        # A single long row is summed in another order than several: it is given company.
        rows = hidden.expand(2, -1) if len(hidden) == 1 else hidden
        outputs = torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "")
        return cast(Tensor, outputs[: len(hidden)])


class Int8Linear(nn.Module):
    """A linear layer with weights of one byte; what it gives is float32.

    Each output's weights share a scale, found once; each row's activations another, found as they pass.
    Products and sums are whole numbers and thus exact: what a row gets does not depend on its company.
    """

    scale: Tensor
    bias: Tensor
    values: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        values, scale = quantise_rows(linear.weight.detach().float())
        bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach().float()
        self.is_packed = HAS_ONEDNN and values.numel() >= MIN_PACKED_WEIGHTS
        # What only oneDNN can read cannot be compared either: two layers are the same if their digests are.
        digest = hashlib.blake2b(values.numpy().tobytes(), digest_size=16).digest()
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))
        self.register_buffer("scale", scale.flatten() / LARGEST_INT8)
        self.register_buffer("bias", bias)
        self.register_buffer("zero_points", torch.zeros(linear.out_features, dtype=torch.int64))
        if self.is_packed:
            values = torch.ops.onednn.qlinear_prepack(values, None)
        self.register_buffer("values", values, persistent=not self.is_packed)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map ... x inputs to ... x outputs."""
        rows = hidden.flatten(0, -2).float()
        largest = rows.abs().amax(dim=-1, keepdim=True).clamp_(min=TINY)
        rows = rows / largest
        if self.is_packed:
            # The packed kernel wants unsigned activations, so zero lies at 128; the half rounds.
            products = torch.ops.onednn.qlinear_pointwise(
                *(torch.add(128.5, rows, alpha=LARGEST_INT8).to(torch.uint8), 1.0, 128),
                *(self.values, self.scale, self.zero_points, None),
                *(1.0, 0, torch.float32, "none", [], ""),
            )
        else:
            whole = rows.mul_(LARGEST_INT8).round_().to(torch.int8)
            products = torch._int_mm(whole, self.values.t()) * self.scale
        return cast(Tensor, torch.addcmul(self.bias, products, largest).unflatten(0, hidden.shape[:-1]))


class Int8Embedding(nn.Module):
    """An embedding with entries of one byte and a scale for each token; it gives float32."""

    values: Tensor
    scale: Tensor

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        values, scale = quantise_rows(embedding.weight.detach().float())
        self.register_buffer("values", values)
        self.register_buffer("scale", scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Give the rows of some tokens."""
        return self.values[ids] * self.scale[ids]


def quantise_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to whole numbers up to 127: int8 values, and the float32 scale of each row."""
    scale = rows.abs().amax(dim=-1, keepdim=True).clamp_(min=TINY).div_(LARGEST_INT8)
    return (rows / scale).round_().to(torch.int8), scale
