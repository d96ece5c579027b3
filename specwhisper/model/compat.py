"""The private APIs of torch, transformers and accelerate that this package uses.

``tests/unit/model/test_model_compat.py`` fails where a release changes them.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import WhisperTokenizer

# The last releases that were tried.
TORCH, TRANSFORMERS, ACCELERATE = "2.13", "5.24", "1.15"

IS_X86 = platform.machine() in ("x86_64", "AMD64")
HAS_ONEDNN = torch.backends.mkldnn.is_available() and IS_X86
HAS_BFLOAT16 = HAS_ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported()
# Older x86 processors sum products of bytes in 16 bits, which overflow.
HAS_INT8_SUMS = not IS_X86 or torch.cpu._is_vnni_supported()


def pack_weights(weight: Tensor, num_rows: int) -> Tensor:
    """Pack float weights for oneDNN, which chooses the order for so many rows."""
    return cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(weight, num_rows))


def multiply_packed(rows: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply rows x inputs by packed weights: rows x outputs."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], ""))


def pack_int8_weights(weight: Tensor) -> Tensor:
    """Pack int8 weights for oneDNN."""
    return cast(Tensor, torch.ops.onednn.qlinear_prepack(weight, None))


def multiply_packed_int8(rows: Tensor, packed: Tensor, scale: Tensor, zero_points: Tensor) -> Tensor:
    """Multiply uint8 rows, whose zero is 128, by packed int8 weights.

    Returns float32, rows x outputs.
    """
    return cast(
        Tensor,
        torch.ops.onednn.qlinear_pointwise(
            *(rows, 1.0, 128, packed, scale, zero_points, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        ),
    )


def multiply_int8(rows: Tensor, weight: Tensor) -> Tensor:
    """Multiply int8 rows x inputs by int8 inputs x outputs: int32, rows x outputs."""
    return torch._int_mm(rows, weight)


def join_chunks(
    tokenizer: WhisperTokenizer,
    chunks: Sequence[tuple[Sequence[int], tuple[float, float, float]]],
    *,
    timestamps: bool,
    time_step_s: float,
) -> tuple[str, list[dict[str, Any]]]:
    """Join overlapping chunks as transformers' pipeline does.

    Parameters
    ----------
    chunks : each with its tokens and stride (length and both overlaps, in seconds).

    Returns
    -------
    The text and, with timestamps, its parts as dictionaries with ``text`` and ``timestamp``.
    """
    outputs = [
        {"tokens": torch.tensor([tokens], dtype=torch.long), "stride": stride} for tokens, stride in chunks
    ]
    text, found = tokenizer._decode_asr(
        outputs, return_timestamps=timestamps or None, return_language=None, time_precision=time_step_s
    )
    return text, found["chunks"] if timestamps else []


def execution_device(layer: nn.Module) -> torch.device:
    """Return the device that runs a layer; accelerate may offload its weights."""
    for module in layer.modules():
        hook = getattr(module, "_hf_hook", None)
        if getattr(hook, "execution_device", None) is not None:
            return torch.device(hook.execution_device)  # type: ignore[union-attr]
    return next(layer.parameters()).device
