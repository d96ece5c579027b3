"""Do on a GPU, in its order of work, what is done otherwise on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from numpy.typing import ArrayLike
from torch import Tensor


def to_device(numbers: ArrayLike, device: torch.device) -> Tensor:
    """Make a tensor on a device without waiting for a GPU's earlier work."""
    if device.type != "cuda":
        return torch.tensor(numbers, device=device)
    # The copy from pinned memory is queued on the stream; torch keeps the memory until then.
    return torch.tensor(numbers, pin_memory=True).to(device, non_blocking=True)


def to_host(values: Tensor) -> Callable[[], Tensor]:
    """Start a copy to the host; return a function that waits for it, on any thread."""
    if values.device.type != "cuda":
        return values.cpu
    copied = values.to("cpu", non_blocking=True)  # into pinned memory
    is_copied = torch.cuda.Event()
    is_copied.record(torch.cuda.current_stream(values.device))

    def wait() -> Tensor:
        is_copied.synchronize()
        return copied

    return wait
