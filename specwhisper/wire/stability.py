"""How sure text is that may still change, as clients are told it."""

from __future__ import annotations

DRAFT_STABILITY = 0.1
VERIFIED_STABILITY = 0.9


def is_verified(stability: float) -> bool:
    """Tell whether text is the target's own; on the wire a stability is of single precision."""
    return stability > (DRAFT_STABILITY + VERIFIED_STABILITY) / 2
