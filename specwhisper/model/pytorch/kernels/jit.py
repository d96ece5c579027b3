"""Compile kernels with Triton, where it is installed and the device can run them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:  # part of torch's CUDA builds on Linux
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

__all__ = ["LOG2_E", "kernel", "supports", "tl", "triton"]

LOG2_E = math.log2(math.e)  # the hardware computes exponents to the base 2


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with Triton when it is launched; without Triton, return it."""
    return function if triton is None else triton.jit(function)


def supports(tensor: Tensor) -> bool:
    """Return whether kernels run on a tensor's device with its type."""
    if triton is None or tensor.device.type != "cuda" or torch.version.hip is not None:
        return False  # on ROCm, where no kernel was compiled or tried, torch computes the same
    needed = (8, 9) if tensor.dtype == torch.float8_e4m3fn else (8, 0)
    return torch.cuda.get_device_capability(tensor.device) >= needed
