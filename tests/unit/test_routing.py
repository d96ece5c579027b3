"""Where sessions go, and how many targets there are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_deploy.routing import (
    ADDRESS,
    HAS_ROOM,
    OPEN_SESSIONS,
    OPENS_SESSION,
    SILENT_S,
    UNANSWERED_S,
    VOCABULARY,
    WEIGHTS,
    LeastSessions,
    RecentPicks,
    Silent,
)
from specwhisper_deploy.scaling import BySessions


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_picks_are_remembered_for_a_while():
    clock = Clock()
    recent = RecentPicks(1.5, clock=clock)
    recent.note("a", "first")
    clock.now_s = 1.0
    recent.note("b", "second")
    assert recent.count() == {"first": 1, "second": 1}
    clock.now_s = 1.5
    assert recent.count() == {"second": 1}
    clock.now_s = 2.5
    assert recent.count() == {}


def test_a_question_that_is_asked_again_is_one_pick():
    clock = Clock()
    recent = RecentPicks(1.5, clock=clock)
    recent.note("a", "first")
    recent.note("b", "first")
    clock.now_s = 1.0
    recent.note("a", "second")
    assert recent.count() == {"first": 1, "second": 1}
    clock.now_s = 2.0
    assert recent.count() == {"second": 1}


def test_who_leaves_a_question_unanswered_is_silent_until_it_answers_another_in_time():
    clock = Clock()
    silent = Silent(0.5, 10.0, clock=clock)
    silent.note("a", "first")
    silent.note("b", "second")
    silent.hear("b", "second")
    clock.now_s = 0.4
    assert silent.names() == set()
    clock.now_s = 0.5
    assert silent.names() == {"first"}
    clock.now_s = 0.7
    silent.hear("a", "first")  # so ends a question that was given up, too
    assert silent.names() == {"first"}
    silent.note("c", "first")
    silent.hear("c", "first")
    assert silent.names() == set()


def test_who_was_silent_is_asked_again_later():
    clock = Clock()
    silent = Silent(0.5, 10.0, clock=clock)
    silent.note("a", "first")
    clock.now_s = 9.9
    assert silent.names() == {"first"}
    clock.now_s = 10.0
    assert silent.names() == set()
    silent.hear("a", "first")  # long forgotten
    assert silent.names() == set()


class Routing:
    """A router of targets, as Ray asks it and tells it of answers."""

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

    def tell(self, name: str, **told: str) -> None:
        """Have a target report more of itself."""
        [replica] = [each for each in self._replicas if each.replica_id == name]
        replica.routing_stats |= told

    async def ask(
        self, question: str, method: str = OPENS_SESSION, *, known_first: bool = False, **asked
    ) -> list[str]:
        """Return the targets in the order in which they are asked."""
        metadata = SimpleNamespace(call_method=method, internal_request_id=question)
        request = pb.LocateRequest if method == OPENS_SESSION else pb.DescribeRequest
        args = [request(**asked).SerializeToString(), "caller", *([True] if known_first else [])]
        pending = SimpleNamespace(metadata=metadata, args=args)
        ranked = await self._router.choose_replicas(self._replicas, pending)
        return [replica.replica_id for [replica] in ranked]

    def answer(self, question: str, name: str) -> None:
        self._router.on_request_completed(name, question)


async def test_sessions_go_to_who_has_the_fewest_and_who_is_full_comes_last():
    routing = Routing(many=5, few=3, full=None)
    assert await routing.ask("a") == ["few", "many", "full"]
    routing.answer("a", "few")
    assert await routing.ask("b") == ["few", "many", "full"]
    routing.answer("b", "few")
    assert (await routing.ask("c"))[2] == "full"  # as many as the other, with those to be opened soon


@pytest.mark.parametrize("method", [OPENS_SESSION, "describe"])
async def test_who_leaves_a_question_unanswered_is_asked_last(method):
    routing = Routing(hangs=0, works=5, full=None)
    assert await routing.ask("a", method) == ["hangs", "works", "full"]
    routing.clock.now_s = UNANSWERED_S
    assert await routing.ask("b", method) == ["works", "full", "hangs"]
    routing.answer("b", "works")
    assert await routing.ask("c", method) == ["works", "full", "hangs"]
    routing.answer("c", "works")
    routing.clock.now_s = SILENT_S
    assert await routing.ask("d", method) == ["hangs", "works", "full"]
    routing.answer("d", "hangs")
    routing.clock.now_s = SILENT_S + UNANSWERED_S
    assert await routing.ask("e", method) == ["hangs", "works", "full"]


@pytest.mark.parametrize(("told", "asked"), [(WEIGHTS, "weights_digest"), (VOCABULARY, "vocabulary_digest")])
async def test_a_session_goes_to_a_target_that_has_what_it_needs(told, asked):
    routing = Routing(old=5, new=0, unknown=7)
    routing.tell("old", **{told: "old"})
    routing.tell("new", **{told: "new"})
    assert await routing.ask("a", **{asked: "old"}) == ["old", "unknown", "new"]
    routing.answer("a", "old")
    assert await routing.ask("b", **{asked: "new"}) == ["new", "unknown", "old"]
    routing.answer("b", "new")
    assert await routing.ask("c") == ["new", "old", "unknown"], "one that begins may take any"


@pytest.mark.parametrize(("told", "asked"), [(WEIGHTS, "weights_digest"), (VOCABULARY, "vocabulary_digest")])
async def test_after_a_mismatch_new_targets_are_asked_after_those_known_to_match(told, asked):
    """In their first second they are empty, and as many as the locator asks; until then they are as good."""
    routing = Routing(new_1=0, new_2=0, new_3=0, busy=5, full=None, other=0)
    for name, digest in {"busy": "old", "full": "old", "other": "new"}.items():
        routing.tell(name, **{told: digest})
    ranked = await routing.ask("a", **{asked: "old"})
    assert ranked[3:] == ["busy", "full", "other"]
    routing.answer("a", ranked[0])
    ranked = await routing.ask("a again", known_first=True, **{asked: "old"})
    assert ranked[:2] == ["busy", "full"] and ranked[-1] == "other"
    routing.answer("a again", "busy")
    ranked = await routing.ask("b")
    assert ranked[-2:] == ["busy", "full"], "a session that may go to any goes to an empty one"


async def test_a_target_known_in_part_is_asked_between():
    routing = Routing(in_part=0, match=5, other=0)
    routing.tell("in_part", **{VOCABULARY: "words"})
    routing.tell("match", **{VOCABULARY: "words", WEIGHTS: "old"})
    routing.tell("other", **{WEIGHTS: "new"})
    needs = {"vocabulary_digest": "words", "weights_digest": "old"}
    assert await routing.ask("a", known_first=True, **needs) == ["match", "in_part", "other"]


async def test_a_target_that_failed_a_session_is_asked_after_others():
    routing = Routing(failed=0, works=5, full=None)
    for name in ("failed", "works", "full"):
        routing.tell(name, **{ADDRESS: f"{name}:1"})
    assert await routing.ask("a", avoid=["failed:1"]) == ["works", "full", "failed"]


@pytest.mark.parametrize(
    ("sessions", "answer_ms", "wanted"),
    [
        ({}, {}, 0),
        ({"a": 0}, {"a": 0}, 0),
        ({"a": 4}, {"a": 50}, 1),
        ({"a": 5}, {"a": 50}, 2),
        ({"a": 4, "b": 1}, {"a": 50, "b": 50}, 2),
        ({"a": 4}, {"a": 101}, 2),  # fuller than it is
        ({"a": 8, "b": 8}, {"a": 300, "b": 100}, 8),
    ],
)
def test_so_many_targets_as_sessions_and_their_waiting_ask_for(sessions, answer_ms, wanted):
    assert BySessions(sessions_per_replica=4, answer_ms=100).wanted(sessions, answer_ms) == wanted


@given(st.dictionaries(st.integers(), st.integers(0, 100)), st.integers(1, 20))
def test_without_a_bound_on_waiting_only_sessions_count(sessions, per_replica):
    wanted = BySessions(per_replica).wanted(sessions, dict.fromkeys(sessions, 1e6))
    assert wanted * per_replica >= sum(sessions.values()) > (wanted - 1) * per_replica or wanted == 0


def test_no_sessions_on_a_target_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        BySessions(0)
