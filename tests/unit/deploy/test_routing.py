"""Routing and autoscaling: the target of a session, and the number of targets."""

from types import SimpleNamespace

import pytest

from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_deploy.routing import (
    ADDRESS,
    ANSWER_TIMEOUT_S,
    HAS_ROOM,
    LOCATE,
    OPEN_SESSIONS,
    UNRESPONSIVE_S,
    VOCABULARY,
    WEIGHTS,
    LeastSessions,
    RecentPicks,
)
from specwhisper_deploy.scaling import BySessions
from tests.clock import Clock


def test_picks_count_for_a_while_and_once_for_a_request_that_is_routed_again():
    clock = Clock()
    recent = RecentPicks(1.5, clock=clock)
    recent.add("a", "first")
    recent.add("b", "first")
    clock.now_s = 1.0
    recent.add("a", "second")
    assert recent.count() == {"first": 1, "second": 1}
    clock.now_s = 1.5
    assert recent.count() == {"second": 1}
    clock.now_s = 2.5
    assert recent.count() == {}


class Routing:
    """A router of targets, called as Ray calls it."""

    def __init__(self, **sessions: int | None) -> None:
        self.clock = Clock()
        self._router = object.__new__(LeastSessions)  # the rest of it needs a cluster
        self._router.initialize_state(clock=self.clock)
        self._replicas = [
            SimpleNamespace(
                replica_id=name, routing_stats={OPEN_SESSIONS: number or 0, HAS_ROOM: number is not None}
            )
            for name, number in sessions.items()
        ]

    def report(self, name: str, **stats: str) -> None:
        """Add to the statistics of a target."""
        [replica] = [each for each in self._replicas if each.replica_id == name]
        replica.routing_stats |= stats

    async def ask(self, request_id: str, method: str = LOCATE, **fields) -> list[str]:
        """Return the targets in the order in which they are asked."""
        metadata = SimpleNamespace(call_method=method, internal_request_id=request_id)
        request = pb.LocateRequest if method == LOCATE else pb.DescribeRequest
        args = [request(**fields).SerializeToString(), "caller"]
        pending = SimpleNamespace(metadata=metadata, args=args)
        ranked = await self._router.choose_replicas(self._replicas, pending)
        return [replica.replica_id for [replica] in ranked]

    def answer(self, request_id: str, name: str) -> None:
        self._router.on_request_completed(name, request_id)


async def test_sessions_go_to_the_target_with_the_fewest_and_full_ones_are_last():
    routing = Routing(many=5, few=3, full=None)
    assert await routing.ask("a") == ["few", "many", "full"]
    routing.answer("a", "few")
    assert await routing.ask("b") == ["few", "many", "full"]
    routing.answer("b", "few")
    assert (await routing.ask("c"))[2] == "full"  # with recent picks it has as many as the other


@pytest.mark.parametrize("method", [LOCATE, "describe"])
async def test_an_unresponsive_target_is_asked_last(method):
    routing = Routing(hangs=0, works=5, full=None)
    assert await routing.ask("a", method) == ["hangs", "works", "full"]
    routing.clock.now_s = ANSWER_TIMEOUT_S
    assert await routing.ask("b", method) == ["works", "full", "hangs"]
    routing.answer("b", "works")
    assert await routing.ask("c", method) == ["works", "full", "hangs"]
    routing.answer("c", "works")
    routing.clock.now_s = UNRESPONSIVE_S
    assert await routing.ask("d", method) == ["hangs", "works", "full"]
    routing.answer("d", "hangs")
    routing.clock.now_s = UNRESPONSIVE_S + ANSWER_TIMEOUT_S
    assert await routing.ask("e", method) == ["hangs", "works", "full"]


@pytest.mark.parametrize(("stat", "field"), [(WEIGHTS, "weights_digest"), (VOCABULARY, "vocabulary_digest")])
async def test_a_session_goes_to_a_target_with_its_weights_and_vocabulary(stat, field):
    routing = Routing(old=5, new=0, unknown=7)
    routing.report("old", **{stat: "old"})
    routing.report("new", **{stat: "new"})
    assert await routing.ask("a", **{field: "old"}) == ["old", "unknown", "new"], (
        "one may match until it reports"
    )
    routing.answer("a", "old")
    assert await routing.ask("b", **{field: "new"}) == ["new", "unknown", "old"]
    routing.answer("b", "new")
    assert await routing.ask("c") == ["new", "old", "unknown"], "one that begins may take any"


async def test_a_target_that_failed_a_session_is_asked_after_others():
    routing = Routing(failed=0, works=5, full=None)
    for name in ("failed", "works", "full"):
        routing.report(name, **{ADDRESS: f"{name}:1"})
    assert await routing.ask("a", avoid=["failed:1"]) == ["works", "full", "failed"]


@pytest.mark.parametrize(
    ("sessions", "answer_ms", "wanted"),
    [
        ({}, {}, 0),
        ({"a": 0}, {"a": 0}, 0),
        ({"a": 4}, {"a": 50}, 1),
        ({"a": 5}, {"a": 50}, 2),
        ({"a": 4}, {"a": 101}, 2),  # fuller than it is
        ({"a": 8, "b": 8}, {"a": 300, "b": 100}, 8),
    ],
)
def test_the_number_of_targets_follows_sessions_and_answer_times(sessions, answer_ms, wanted):
    assert BySessions(sessions_per_replica=4, answer_ms=100).num_replicas(sessions, answer_ms) == wanted


def test_standby_replicas_run_beyond_those_that_are_needed():
    policy = BySessions(sessions_per_replica=4, num_standby=1)
    assert [policy.num_replicas({"a": sessions}, {"a": 1e6}) for sessions in (0, 4, 5)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "sentence"), [((4, None, -1), "num_standby is -1"), ((0,), "is 0: it must be above 0")]
)
def test_settings_out_of_range_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        BySessions(*settings)
