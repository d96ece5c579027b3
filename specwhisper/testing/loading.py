"""Failpoints for tests; loaded only if an environment variable names some.

SPECWHISPER_FAILPOINTS=verify.before=kill@7,send.after=stop
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VARIABLE = "SPECWHISPER_FAILPOINTS"


def load_failpoints(environment: Mapping[str, str], server: str) -> Any:
    """Return a server's failpoints; ``None`` without the environment variable.

    ``server``: "target" or "draft".
    """
    if not environment.get(VARIABLE, "").strip():
        return None
    from specwhisper.testing.failpoints import POINTS, read_failpoints

    return read_failpoints(environment, POINTS[server])
