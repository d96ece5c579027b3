"""Protocols of an encoder, and of a decoder with slots, in one array library; errors of its device.

:mod:`specwhisper.model.onnx` serves CPUs with NumPy's arrays, :mod:`specwhisper.model.pytorch` GPUs, device
maps and other types of numbers with torch's tensors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.arrays import Array, Device

Features = NDArray[np.float32]  # a window's: mel bins x frames


def wanted_tokens(
    tokens: Sequence[Sequence[int]], num_scored: Sequence[int], probes: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the tokens whose logits :meth:`Backend.append` returns.

    Each is (row, index in the row).
    """
    scored = [
        (row, index)
        for row, (of_row, num) in enumerate(zip(tokens, num_scored, strict=True))
        for index in range(len(of_row) - num, len(of_row))
    ]
    return [*scored, *probes]


class Encoder(Protocol):
    """Encodes windows; safe in several threads.

    ``max_windows``: most windows that are encoded faster together, each by a thread.
    """

    max_windows: int

    def __call__(self, windows: Sequence[Features]) -> Sequence[Any]:
        """Encode windows, mel bins x frames each, to positions x d_model each."""


class Backend(Protocol):
    """The slots of a model.

    Attributes
    ----------
    max_windows : most windows that are encoded faster together, each by a thread.
    takes_short_windows : whether a window may be shorter than 30 s.
    device : where the logits are; ``None`` for NumPy's arrays.
    """

    max_windows: int
    takes_short_windows: bool
    device: Device

    @property
    def bytes_per_slot(self) -> int: ...

    def inference(self) -> AbstractContextManager[object]: ...

    def encode(self, windows: Sequence[tuple[int, Features]]) -> None: ...

    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> Array:
        """Append rows of tokens; return logits after the last ``num_scored`` of each.

        Parameters
        ----------
        probes : further tokens whose logits are returned, at most one a row, as (row, index in the row).

        Returns
        -------
        float32 logits, sum(num_scored) + len(probes) x vocabulary, row after row, then the probes; the next
        call may overwrite them.
        """

    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Array:
        """Run tokens through an emptied slot; return cross-attention weights of heads.

        The slot is empty afterwards.

        Parameters
        ----------
        heads : (layer, head) of each.

        Returns
        -------
        float32 weights, heads x tokens x positions of the window, each row summing to 1.
        """

    def rollback(self, slot: int, length: int) -> None: ...

    def length(self, slot: int) -> int: ...

    def warm_up(self) -> None:
        """Prepare every shape that may occur."""


# CUDA's messages for errors after which every later call of the process fails too.
FAULTS = re.compile(
    r"device-side assert|illegal memory access|illegal instruction|illegal address|misaligned address"
    r"|unspecified launch failure|launch timed out|hardware stack error|invalid program counter"
    r"|not supported on global/shared address space|uncorrectable",
    re.IGNORECASE,
)
# Not every place in torch raises OutOfMemoryError; the last ones are ONNX Runtime's.
NO_MEMORY = re.compile(
    r"(CUDA|HIP) error: out of memory|MPS backend out of memory|can't allocate memory|ALLOC_FAILED"
    r"|std::bad_alloc|Failed to allocate memory"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory was short, on a device or the host; old data is intact."""
    # torch's class by its name: a process that runs no model of torch does not load it.
    is_torch = "OutOfMemoryError" in {kind.__name__ for kind in type(error).__mro__}
    # ONNX Runtime's exceptions are of no common class.
    is_runtime = isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime")
    is_message = is_runtime and NO_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError) or is_torch or is_message


def is_device_fault(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and FAULTS.search(str(error)) is not None
