"""Stability of text that may still change, as responses carry it."""

from __future__ import annotations

DRAFT_STABILITY = 0.1
VERIFIED_STABILITY = 0.9


def is_verified(stability: float) -> bool:
    """Return whether text is the target's own.

    On the wire a stability has single precision.
    """
    return stability > (DRAFT_STABILITY + VERIFIED_STABILITY) / 2
