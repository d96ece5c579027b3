"""Do on a GPU, in its order of work, what is done otherwise on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from numpy.typing import ArrayLike
from torch import Tensor


def logits_device(model_device: torch.device) -> torch.device:
    """Return the device on which tokens are chosen: the CPU for a model on ``mps``.

    Sampling takes float64, which ``mps`` lacks. The host and such a GPU have one memory, so copies are cheap.
    """
    return torch.device("cpu") if model_device.type == "mps" else model_device


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
