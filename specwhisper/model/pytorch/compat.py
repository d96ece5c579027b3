"""The private APIs of torch, transformers and accelerate that this package uses.

``tests/unit/model/test_model_compat.py`` fails where a release changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import WhisperTokenizer

# The last releases that were tried.
TORCH, TRANSFORMERS, ACCELERATE = "2.13", "5.24", "1.15"


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
