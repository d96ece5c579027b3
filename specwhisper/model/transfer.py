"""Numbers brought from the host to a device and back, without waiting for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def to_device(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Make a tensor of numbers on a device, without waiting for what a GPU still has to do."""
    if device.type != "cuda":
        return torch.tensor(numbers, device=device)
    # From pinned memory the copy queues behind the GPU's work; torch keeps the memory until it is done.
    return torch.tensor(numbers, pin_memory=True).to(device, non_blocking=True)


def to_host(values: Tensor) -> Callable[[], Tensor]:
    """Ask a device for values; return what waits for them, on any thread, and gives them on the host."""
    if values.device.type != "cuda":
        return values.cpu
    copied = values.to("cpu", non_blocking=True)  # into pinned memory
    is_there = torch.cuda.Event()
    is_there.record(torch.cuda.current_stream(values.device))

    def wait() -> Tensor:
        is_there.synchronize()
        return copied

    return wait
