"""Which target takes the next session: of those that match and answer, the one with the fewest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import IntEnum
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar

from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica

from specwhisper.wire.v1 import verification_pb2 as pb

OPEN_SESSIONS = "open_sessions"
HAS_ROOM = "has_room"  # for another one, in slots and in time
ADDRESS = "address"
WEIGHTS, VOCABULARY = "weights_digest", "vocabulary_digest"
OPENS_SESSION = "locate"  # the question that a session follows
STATS_PERIOD_S = 1.0
UNANSWERED_S = 0.5  # shorter than the locator waits: who hangs is known when it asks another one
SILENT_S = 10.0  # until who hung is given another chance, which costs somebody the locator's wait

Name = TypeVar("Name", bound=Hashable)


class Match(IntEnum):
    """Whether a target has what a session needs, the best first."""

    YES = 0
    UNKNOWN = 1  # it has not reported yet
    NO = 2


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


class Silent(Generic[Name]):
    """Remembers who has left a question unanswered.

    Parameters
    ----------
    after_s : how long an answer may take.
    for_s : how long a question is held against whom it was put to, unless it answers another one in time.
    """

    def __init__(self, after_s: float, for_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._after_s = after_s
        self._for_s = for_s
        self._clock = clock
        self._asked: dict[str, tuple[float, Name]] = {}  # by question: when, and who

    def note(self, question: str, name: Name) -> None:
        """Remember who is asked."""
        self._asked[question] = (self._clock(), name)

    def hear(self, question: str, name: Name) -> None:
        """Take an answer. One that comes late is none: it may be the end of a question that was given up."""
        asked_s, _ = self._asked.get(question, (-inf, name))
        if self._clock() - asked_s < self._after_s:
            self._asked = {each: asked for each, asked in self._asked.items() if asked[1] != name}

    def names(self) -> set[Name]:
        """Give those that are silent."""
        now_s = self._clock()
        self._asked = {each: asked for each, asked in self._asked.items() if now_s < asked[0] + self._for_s}
        return {name for asked_s, name in self._asked.values() if now_s >= asked_s + self._after_s}


class LeastSessions(FIFOMixin, RequestRouter):  # type: ignore[misc]  # Ray's classes have no types
    """Sends a question to the replica with the fewest sessions, those to be opened soon included."""

    def initialize_state(
        self, remember_s: float = 1.5 * STATS_PERIOD_S, clock: Callable[[], float] = monotonic
    ) -> None:
        """Take what the deployment's configuration says."""
        self._recent = RecentPicks[ReplicaID](remember_s, clock=clock)
        self._silent = Silent[ReplicaID](UNANSWERED_S, SILENT_S, clock=clock)

    async def choose_replicas(
        self, candidate_replicas: Iterable[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Rank replicas, the emptiest first; last those that do not match, are silent, to avoid, or full.

        Equals are ranked at random. What a new replica is becomes known with its first report. Until then it
        counts as matching. A question put ``known_first`` ranks it after those known to match.
        """
        recent, silent = self._recent.count(), self._silent.names()
        asked = _asked(pending_request)
        known_first = _wants_known_first(pending_request)

        def rank(replica: RunningReplica) -> tuple[int, bool, bool, bool, int]:
            told, name = replica.routing_stats, replica.replica_id
            match = _match(asked, told)
            return (
                match if known_first else match is Match.NO,
                name in silent,
                told.get(ADDRESS) in asked.avoid,
                not told.get(HAS_ROOM, True),
                told.get(OPEN_SESSIONS, 0) + recent[name],
            )

        replicas = list(candidate_replicas)
        random.shuffle(replicas)
        replicas.sort(key=rank)
        # Noted before it is asked: of many questions at once, the next is ranked before this is answered.
        if replicas and pending_request is not None:
            question, first = pending_request.metadata.internal_request_id, replicas[0].replica_id
            self._silent.note(question, first)
            if pending_request.metadata.call_method == OPENS_SESSION:
                self._recent.note(question, first)
        return [[replica] for replica in replicas]

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Learn who answers; Ray calls it with failures and questions that were given up as well."""
        self._silent.hear(internal_request_id, replica_id)


def _asked(pending: PendingRequest | None) -> pb.LocateRequest:
    """Return what a session needs; nothing where a question is none for a place."""
    if pending is None or pending.metadata.call_method != OPENS_SESSION:
        return pb.LocateRequest()
    return pb.LocateRequest.FromString(pending.args[0])


def _wants_known_first(pending: PendingRequest | None) -> bool:
    """Return whether the locator has met a new replica that did not match; see ``Replica.locate``."""
    return pending is not None and len(pending.args) > 2 and bool(pending.args[2])


def _match(asked: pb.LocateRequest, reported: Mapping[str, Any]) -> Match:
    """Return whether a target has all that a session needs, as far as it is known."""
    needs = {WEIGHTS: asked.weights_digest, VOCABULARY: asked.vocabulary_digest}
    has = {
        reported.get(name) == needed if name in reported else None for name, needed in needs.items() if needed
    }
    if False in has:
        return Match.NO
    return Match.UNKNOWN if None in has else Match.YES
