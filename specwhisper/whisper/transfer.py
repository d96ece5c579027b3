"""Numbers of the host brought to a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def to_device(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Make a tensor of numbers on a device, without waiting for what a GPU still has to do."""
    if device.type != "cuda":
        return torch.tensor(numbers, device=device)
    # From pinned memory the copy queues behind the GPU's work; torch keeps the memory until it is done.
    return torch.tensor(numbers, pin_memory=True).to(device, non_blocking=True)
