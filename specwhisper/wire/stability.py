"""Stability of text that may still change, as responses carry it."""

from __future__ import annotations

DRAFT_STABILITY = 0.1
VERIFIED_STABILITY = 0.9  # the target's own text, which more audio may change
SETTLED_STABILITY = 0.95  # of a complete segment; its window may still be judged as failed


def is_verified(stability: float) -> bool:
    """Return whether text is the target's own.

    On the wire a stability has single precision.
    """
    return stability > (DRAFT_STABILITY + VERIFIED_STABILITY) / 2


def is_settled(stability: float) -> bool:
    """Return whether text is of a complete segment."""
    return stability > (VERIFIED_STABILITY + SETTLED_STABILITY) / 2
