"""Stability of text that may still change, as responses carry it."""

from __future__ import annotations

DRAFT_STABILITY = 0.1
VERIFIED_STABILITY = 0.6  # the target's own text, which more audio may change
AGREED_STABILITY = 0.9  # text that only grows, since decodings of more audio agree on it


def is_verified(stability: float) -> bool:
    """Return whether text is the target's own.

    On the wire a stability has single precision.
    """
    return stability > 0.5
