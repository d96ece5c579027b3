"""Where in a counter-based random sequence the noise of a token lies.

Sampling draws ``argmax(logits / temperature + Gumbel noise)``. The noise of a token at a position is a pure
function of the caller's seed, where the window starts, how often it was tried, the position and the token's
id. So target and draft, and any way of splitting the work between them, draw with the same noise.
"""

from __future__ import annotations

from enum import IntEnum

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(value: int) -> int:
    """Scramble 64 bits: the output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    value = ((value ^ (value >> 30)) * FIRST) & MASK
    value = ((value ^ (value >> 27)) * SECOND) & MASK
    return value ^ (value >> 31)


class Stream(IntEnum):
    """What noise is for; streams are independent of each other."""

    CHOICE = 0  # the target's draw, and the draft's where it foresees that
    DRAFT = 1  # the draft's own draw, where acceptance is classical
    ACCEPT = 2  # whether a candidate is kept
    RESIDUAL = 3  # what is drawn in the place of one that is not


def window_key(seed: int, start_sample: int, attempt: int, stream: Stream = Stream.CHOICE) -> int:
    """Give the key of a window's noise; never made from a session's or a window's id."""
    key = 0
    for part in (seed, start_sample, attempt, stream):
        key = mix((key + part + 1) * GOLDEN & MASK)
    return key


def uniform(key: int) -> float:
    """Give a number above 0 and below 1."""
    return ((mix((key + GOLDEN) & MASK) >> 11) + 0.5) * 2.0**-53


def position_key(window: int, position: int) -> int:
    """Give the key of the noise at one position; token ``i`` has number ``i + 1`` of its sequence."""
    return mix((window + (position + 1) * GOLDEN) & MASK)
