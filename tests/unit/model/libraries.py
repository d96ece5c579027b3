"""Tests that run on NumPy arrays and on torch tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

TORCH = torch.device("cpu")
OfLibrary = Callable[[torch.Tensor], Any]


def numpy_of(values: torch.Tensor) -> np.ndarray:
    """Return a copy as a NumPy array."""
    return values.numpy().copy()


def torch_of(values: torch.Tensor) -> torch.Tensor:
    """Return a copy as a tensor."""
    return values.clone()


LIBRARIES = pytest.mark.parametrize("of", [numpy_of, torch_of], ids=["numpy", "torch"])
