"""Sample tokens by adding noise to logits: draft and target choose alike.

The largest of ``logits / temperature + Gumbel noise`` is a sample from their softmax (the Gumbel-max trick).
The noise of a token is a pure function of seed, window start, attempt, position and token id. So target and
draft use the same noise, however the work is split between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from specwhisper.model.arrays import (
    Array,
    Device,
    cumulative_sum,
    fill,
    kth_largest,
    softmax,
    sort,
    to_device,
    unsort,
)
from specwhisper.options import DecodingOptions
from specwhisper.types import Window

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(value: int) -> int:
    """Scramble 64 bits: the output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    value = ((value ^ (value >> 30)) * FIRST) & MASK
    value = ((value ^ (value >> 27)) * SECOND) & MASK
    return value ^ (value >> 31)


def window_key(seed: int, start_sample: int, attempt: int) -> int:
    """Return the key of a window's noise; it depends on no session or window id."""
    key = 0
    for part in (seed, start_sample, attempt, 0):
        key = mix((key + part + 1) * GOLDEN & MASK)
    return key


def position_key(window: int, position: int) -> int:
    """Return the key of a position's noise; token ``i`` has number ``i + 1`` of the key's sequence."""
    return mix((window + (position + 1) * GOLDEN) & MASK)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a window's tokens are drawn."""

    temperature: float
    seed: int
    start_sample: int
    attempt: int = 0
    top_k: int = 0
    top_p: float = 1.0

    def key(self, position: int) -> int:
        return position_key(window_key(self.seed, self.start_sample, self.attempt), position)


def window_sampling(window: Window, options: DecodingOptions) -> Sampling | None:
    """Return how a window's tokens are drawn; ``None`` takes the likeliest."""
    if window.temperature == 0:
        return None
    return Sampling(
        temperature=window.temperature,
        seed=options.seed,
        start_sample=window.start_sample,
        attempt=window.attempt,
        top_k=options.top_k,
        top_p=options.top_p,
    )


def gumbel(keys: Sequence[int], size: int, on_device: Device = None) -> Array:
    """Return Gumbel noise for each key and id: float32, keys x size.

    ``on_device``: the device of the noise; by default it is NumPy's.
    """
    bits = random_bits(keys, size, on_device)
    xp = array_namespace(bits)
    # 53 bits in the middle of their interval: never 0 or 1, so that the logarithms are finite.
    uniform = (xp.astype(_shifted(bits, 11), xp.float64) + 0.5) * 2.0**-53
    return -xp.astype(xp.log(-xp.log(uniform)), xp.float32)


def random_bits(keys: Sequence[int], size: int, on_device: Device = None) -> Array:
    """Return 64 random bits for each key and id, as signed numbers: keys x size."""
    signed = to_device(
        np.array(keys, np.uint64).view(np.int64), on_device
    )  # torch multiplies signed numbers only
    xp = array_namespace(signed)
    numbers = xp.arange(1, size + 1, dtype=xp.int64, device=device(signed))
    bits = signed[:, None] + numbers * _signed(GOLDEN)  # wraps around
    bits = (bits ^ _shifted(bits, 30)) * _signed(FIRST)
    bits = (bits ^ _shifted(bits, 27)) * _signed(SECOND)
    return bits ^ _shifted(bits, 31)


def filter_top_k_top_p(logits: Array, sampling: Sampling) -> None:
    """Set logits outside top-k and top-p to -inf, as transformers' warpers do.

    They are changed in place. Top-p keeps the lowest ids of equal logits.
    """
    if 0 < sampling.top_k < len(logits):
        fill(logits, logits < kth_largest(logits, sampling.top_k), -np.inf)
    if sampling.top_p < 1:
        ascending, order = sort(logits / sampling.temperature)
        is_rest = cumulative_sum(softmax(ascending)) <= 1 - sampling.top_p
        is_rest[-1] = False
        fill(logits, unsort(is_rest, order), -np.inf)


def add_gumbel(logits: Array, samplings: Sequence[Sampling | None], keys: Sequence[int]) -> Array:
    """Return values whose largest is each row's choice: logits, or logits with noise.

    Parameters
    ----------
    logits : rows x vocabulary, after the rules, top-k and top-p.
    samplings : each row's; ``None`` leaves its logits.
    keys : each row's key of the noise.
    """
    drawn = {i: sampling for i, sampling in enumerate(samplings) if sampling is not None}
    if not drawn:
        return logits
    chosen_by = array_namespace(logits).asarray(logits, copy=True)
    # A CPU's caches hold the noise of one row; a GPU needs all rows at once.
    for rows in [[i] for i in drawn] if is_numpy_array(logits) else [list(drawn)]:
        temperatures = to_device(np.array([drawn[i].temperature for i in rows], np.float32), device(logits))
        noise = gumbel([keys[i] for i in rows], logits.shape[1], device(logits))
        chosen_by[rows] = logits[rows] / temperatures[:, None] + noise
    return chosen_by


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _shifted(bits: Array, num_bits: int) -> Array:
    """Shift right and fill with zeros."""
    return (bits >> num_bits) & ((1 << (64 - num_bits)) - 1)
