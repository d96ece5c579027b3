"""The autoscaling policy. Ray sends this file by value, so it imports none of our modules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class BySessions:
    """Asks for one replica for every ``sessions_per_replica`` open sessions.

    If answers take longer than ``answer_ms``, it asks for more replicas in proportion.

    Parameters
    ----------
    sessions_per_replica : sessions that a replica should have. Leave room below its ``max-sessions``, since
        another replica takes a while to start.
    answer_ms : mean time that a session may wait for an answer, in milliseconds; ``None`` for no limit.
    num_standby : replicas beyond those needed, for a loss or many new sessions. They take sessions like the
        others.
    """

    def __init__(
        self, sessions_per_replica: float, answer_ms: float | None = None, num_standby: int = 0
    ) -> None:
        if not sessions_per_replica > 0:
            raise ValueError(f"sessions_per_replica is {sessions_per_replica}: it must be above 0.")
        if num_standby < 0:
            raise ValueError(f"num_standby is {num_standby}: it must be 0 or more.")
        self._num_standby = num_standby
        self._sessions_per_replica = sessions_per_replica
        self._answer_ms = answer_ms

    def num_replicas(self, open_sessions: Mapping[Any, float], answer_ms: Mapping[Any, float]) -> int:
        replicas = sum(open_sessions.values()) / self._sessions_per_replica
        if self._answer_ms and answer_ms:
            mean_ms = sum(answer_ms.values()) / len(answer_ms)
            replicas *= max(1.0, mean_ms / self._answer_ms)
        return math.ceil(replicas) + self._num_standby

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas; Ray applies the bounds and delays of ``autoscaling_config``."""
        metrics = context.aggregated_metrics or {}
        return self.num_replicas(metrics.get("open_sessions", {}), metrics.get("answer_ms", {})), {}
