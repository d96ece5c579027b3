"""Checks that several messages share."""

from __future__ import annotations

import math
from collections.abc import Iterable

from specwhisper.errors import InvalidRequest


def check_finite(name: str, values: Iterable[float]) -> None:
    """Raise ``InvalidRequest`` for NaN and infinities."""
    if not all(map(math.isfinite, values)):
        raise InvalidRequest(f"{name} holds a value that is not a finite number.")
