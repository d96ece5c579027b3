"""Stability of text that may still change, as responses carry it."""

from __future__ import annotations

TENTATIVE = 0.1  # the end of the draft's text
STABLE = 0.5  # the draft's text that four hypotheses in a row have
VERIFIED = 0.9  # the target's own text, which more audio may change
SETTLED = 0.95  # a complete segment; its window may still be judged as failed


def is_stable(stability: float) -> bool:
    """Return whether text is more than tentative.

    On the wire a stability has single precision.
    """
    return stability > (TENTATIVE + STABLE) / 2


def is_verified(stability: float) -> bool:
    return stability > (STABLE + VERIFIED) / 2


def is_settled(stability: float) -> bool:
    return stability > (VERIFIED + SETTLED) / 2
