"""A reference in plain torch for the kernel that writes into slots."""

from __future__ import annotations

import torch
from torch import Tensor


def write_slots_reference(
    key_value: Tensor, cache: Tensor, slots: Tensor, starts: Tensor, lengths: Tensor
) -> None:
    """Write as ``write_slots`` of the Triton kernels does, on any device."""
    token = torch.arange(key_value.shape[1], device=cache.device)
    position = starts[:, None] + token
    is_written = (token < lengths[:, None]) & (position < cache.shape[3])
    row, column = is_written.nonzero(as_tuple=True)
    cache[:, slots[row], :, position[row, column]] = key_value[row, column]
