"""Keys of counter-based random noise for sampling.

Sampling chooses ``argmax(logits / temperature + Gumbel noise)``. The noise of a token is a pure function of
seed, window start, attempt, position and token id. So target and draft use the same noise, however the work
is split between them.
"""

from __future__ import annotations

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
