"""Which target takes the next session: the one with the fewest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from math import inf
from time import monotonic
from typing import Generic, TypeVar

from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica

OPEN_SESSIONS = "open_sessions"
HAS_ROOM = "has_room"  # for another one, in slots and in time
OPENS_SESSION = "locate"  # the question that a session follows
STATS_PERIOD_S = 1.0

Name = TypeVar("Name", bound=Hashable)


class RecentPicks(Generic[Name]):
    """Remembers who was picked of late, and for what: what replicas tell of themselves is that old.

    Parameters
    ----------
    for_s : how long a pick is remembered.
    """

    def __init__(self, for_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._for_s = for_s
        self._clock = clock
        self._picks: dict[str, tuple[float, Name]] = {}  # by question, the oldest first

    def note(self, question: str, name: Name) -> None:
        """Remember who was picked for a question; a question that is asked again is not another one."""
        self._picks.pop(question, None)
        self._picks[question] = (self._clock() + self._for_s, name)

    def count(self) -> Counter[Name]:
        """Count the picks of late."""
        now_s = self._clock()
        while self._picks and (oldest := next(iter(self._picks))) and self._picks[oldest][0] <= now_s:
            del self._picks[oldest]
        return Counter(name for _, name in self._picks.values())


class LeastSessions(FIFOMixin, RequestRouter):  # type: ignore[misc]  # Ray's classes have no types
    """Sends a question to the replica with the fewest sessions, those to be opened soon included."""

    def initialize_state(self, remember_s: float = 1.5 * STATS_PERIOD_S) -> None:
        """Take what the deployment's configuration says."""
        self._recent = RecentPicks[ReplicaID](remember_s)

    async def choose_replicas(
        self, candidate_replicas: Iterable[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Rank replicas, the emptiest first; equals at random."""
        recent = self._recent.count()

        def num_sessions(replica: RunningReplica) -> float:
            open_sessions: float = replica.routing_stats.get(OPEN_SESSIONS, 0)
            is_full = not replica.routing_stats.get(HAS_ROOM, True)
            return inf if is_full else open_sessions + recent[replica.replica_id]

        replicas = list(candidate_replicas)
        random.shuffle(replicas)
        replicas.sort(key=num_sessions)
        # Noted before it is asked: of many questions at once, the next is ranked before this is answered.
        if replicas and pending_request is not None and pending_request.metadata.call_method == OPENS_SESSION:
            self._recent.note(pending_request.metadata.internal_request_id, replicas[0].replica_id)
        return [[replica] for replica in replicas]
