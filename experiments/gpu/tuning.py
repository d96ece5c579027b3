"""Forward passes with other values of the constants that were estimated without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any
from unittest import mock

from experiments.gpu.clock import busy_s
from experiments.gpu.passes import filled, step
from experiments.gpu.weights import Weights
from specwhisper.model.pytorch import decoder
from specwhisper.model.pytorch.kernels import attention, linear

SIZES = ((1, 8), (8, 5), (32, 5))
QUICK = ((2, 4),)
CONSTANTS: tuple[tuple[Any, str, tuple[int, ...]], ...] = (
    (decoder, "MAX_FUSED_TOKENS", (0, 32, 128, 256)),
    (attention, "SPLIT_POSITIONS", (128, 192, 384, 768)),
    (linear, "BLOCK_BYTES", (128, 256, 512)),
    (linear, "STAGED_BYTES", (16_384, 32_768, 65_536)),
    (linear, "MAX_BLOCK_TOKENS", (32, 64)),
)


@dataclass(frozen=True, slots=True)
class Tuned:
    """Median device milliseconds of a pass with one value of one constant.

    Attributes
    ----------
    failure : why it does not run with that value.
    """

    shape: str
    dtype: str
    constant: str
    value: int
    is_ours: bool
    rows: int
    width: int
    busy_ms: float = 0.0
    failure: str = ""


def measure_tuning(
    weights: Weights, sizes: Sequence[tuple[int, int]], record: Callable[[Tuned], None], *, dtype: str
) -> None:
    """Time passes with each value, and record each; a decoder is captured again for each."""
    place = weights.place
    for module, name, values in CONSTANTS:
        for value in values:
            is_ours = value == getattr(module, name)
            with mock.patch.object(module, name, value):
                for rows, width in sizes:
                    tuned = Tuned(weights.name, dtype, name, value, is_ours, rows, width)
                    try:
                        made = filled(weights, rows, dtype=dtype)
                        times = busy_s(step(made, rows, width), place, 2 if place.is_narrow else 50)
                        record(replace(tuned, busy_ms=median(times) * 1e3))
                        del made
                    except Exception as error:  # a value may not fit the device; the others may
                        reason = f"{type(error).__name__}: {error}".splitlines()[0][:120]
                        record(replace(tuned, failure=reason))
                    place.tidy()
