"""The router of targets: a session goes to the matching, responsive target with the fewest sessions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar

from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica

from specwhisper.wire.v1 import verification_pb2 as pb

# Statistics that replicas report.
OPEN_SESSIONS = "open_sessions"
HAS_ROOM = "has_room"  # for another session, by slots and latency
ADDRESS = "address"
WEIGHTS, VOCABULARY = "weights_digest", "vocabulary_digest"

LOCATE = "locate"  # the call that precedes a session
STATS_PERIOD_S = 1.0
ANSWER_TIMEOUT_S = 0.5  # below the locator's time for one attempt, so that the next attempt knows of it
UNRESPONSIVE_S = 10.0  # until a replica that hung is tried again, which costs one attempt

Replica = TypeVar("Replica", bound=Hashable)


class RecentPicks(Generic[Replica]):
    """Counts the sessions routed in the last ``for_s``, which replicas' statistics may not contain yet."""

    def __init__(self, for_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._for_s = for_s
        self._clock = clock
        self._picks: dict[str, tuple[float, Replica]] = {}  # by request: its expiry

    def add(self, request_id: str, replica: Replica) -> None:
        """Count a pick; another pick for the same request replaces it."""
        self._picks[request_id] = (self._clock() + self._for_s, replica)

    def count(self) -> Counter[Replica]:
        now_s = self._clock()
        self._picks = {each: pick for each, pick in self._picks.items() if pick[0] > now_s}
        return Counter(replica for _, replica in self._picks.values())


class PendingRequests(Generic[Replica]):
    """Finds replicas that leave requests unanswered.

    Parameters
    ----------
    timeout_s : how long an answer may take.
    expiry_s : age at which a request is forgotten, unless the replica answers another one in time first.
    """

    def __init__(self, timeout_s: float, expiry_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._timeout_s = timeout_s
        self._expiry_s = expiry_s
        self._clock = clock
        self._sent: dict[str, tuple[float, Replica]] = {}  # by request: when, and to which replica

    def add(self, request_id: str, replica: Replica) -> None:
        self._sent[request_id] = (self._clock(), replica)

    def complete(self, request_id: str, replica: Replica) -> None:
        """Forget a replica's requests if this one ended in time. A late end may be a cancellation."""
        sent_s, _ = self._sent.get(request_id, (-inf, replica))
        if self._clock() - sent_s < self._timeout_s:
            self._sent = {each: sent for each, sent in self._sent.items() if sent[1] != replica}

    def unresponsive(self) -> set[Replica]:
        now_s = self._clock()
        self._sent = {each: sent for each, sent in self._sent.items() if now_s < sent[0] + self._expiry_s}
        return {replica for sent_s, replica in self._sent.values() if now_s >= sent_s + self._timeout_s}


class LeastSessions(FIFOMixin, RequestRouter):  # type: ignore[misc]  # Ray's classes have no types
    """Sends a request to the replica with the fewest sessions, recent picks included."""

    def initialize_state(self, clock: Callable[[], float] = monotonic) -> None:
        """Begin; Ray calls it."""
        self._recent = RecentPicks[ReplicaID](1.5 * STATS_PERIOD_S, clock=clock)
        self._pending = PendingRequests[ReplicaID](ANSWER_TIMEOUT_S, UNRESPONSIVE_S, clock=clock)

    async def choose_replicas(
        self, candidate_replicas: Iterable[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the replicas by their sessions, the fewest first; equal ones are in random order.

        Mismatched, unresponsive, avoided and full ones are last. A new replica counts as matching until its
        first report.
        """
        recent, unresponsive = self._recent.count(), self._pending.unresponsive()
        needs = _locate_request(pending_request)

        def rank(replica: RunningReplica) -> tuple[bool, bool, bool, bool, int]:
            stats, name = replica.routing_stats, replica.replica_id
            return (
                _is_mismatch(needs, stats),
                name in unresponsive,
                stats.get(ADDRESS) in needs.avoid,
                not stats.get(HAS_ROOM, True),
                stats.get(OPEN_SESSIONS, 0) + recent[name],
            )

        replicas = list(candidate_replicas)
        random.shuffle(replicas)
        replicas.sort(key=rank)
        # Noted before it is sent: with many requests at once, the next is ranked before this one is answered.
        if replicas and pending_request is not None:
            request_id, first = pending_request.metadata.internal_request_id, replicas[0].replica_id
            self._pending.add(request_id, first)
            if pending_request.metadata.call_method == LOCATE:
                self._recent.add(request_id, first)
        return [[replica] for replica in replicas]

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Note the end of a request; Ray also reports failed and cancelled ones."""
        self._pending.complete(internal_request_id, replica_id)


def _locate_request(pending: PendingRequest | None) -> pb.LocateRequest:
    """Return the call's request; an empty one unless it is ``Locate``."""
    if pending is None or pending.metadata.call_method != LOCATE:
        return pb.LocateRequest()
    return pb.LocateRequest.FromString(pending.args[0])


def _is_mismatch(needs: pb.LocateRequest, stats: Mapping[str, Any]) -> bool:
    needed = {WEIGHTS: needs.weights_digest, VOCABULARY: needs.vocabulary_digest}
    return any(digest and stats.get(name, digest) != digest for name, digest in needed.items())
