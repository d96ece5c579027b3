"""How many targets there should be: as sessions ask for, and more where answers take too long.

Ray carries this file to its controller by value, so it needs nothing of ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class BySessions:
    """Wants so many replicas that each has a certain number of sessions on average.

    Where sessions wait longer for their answers than they should, all are taken for fuller than they are, in
    that proportion.

    Parameters
    ----------
    sessions_per_replica : how many sessions a replica should have; leave room below its ``max-sessions``,
        since it takes a while until another one is there.
    answer_ms : what a session may wait for an answer on average; ``None`` for any time.
    """

    def __init__(self, sessions_per_replica: float, answer_ms: float | None = None) -> None:
        if not sessions_per_replica > 0:
            raise ValueError(f"sessions_per_replica is {sessions_per_replica}: it must be above 0.")
        self._sessions_per_replica = sessions_per_replica
        self._answer_ms = answer_ms

    def wanted(self, open_sessions: Mapping[Any, float], answer_ms: Mapping[Any, float]) -> int:
        """Say how many replicas should run, by what each of them tells of itself."""
        fullness = sum(open_sessions.values()) / self._sessions_per_replica
        if self._answer_ms and answer_ms:
            mean_ms = sum(answer_ms.values()) / len(answer_ms)
            fullness *= max(1.0, mean_ms / self._answer_ms)
        return math.ceil(fullness)

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Answer Ray, which keeps to the bounds and delays of the deployment's ``autoscaling_config``."""
        told = context.aggregated_metrics or {}
        return self.wanted(told.get("open_sessions", {}), told.get("answer_ms", {})), {}
