"""The oracle finds each kind of violation in a client's log, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.chaos.controls import Control
from experiments.chaos.corrupted_logs import OF_LIVE, OF_RECORDING
from experiments.chaos.faults import FAULTS, edits
from experiments.chaos.requests import OPTIONS, FileRequest, LiveRequest
from experiments.chaos.runs import ClientOutcome, Outcome
from experiments.chaos.scenarios import (
    EVERY,
    LOSES_DRAFT,
    PASSING,
    QUICK,
    SILENT,
    WITH_SPARE,
    WITHOUT_DRAFT,
    Kind,
    draw,
    scenarios,
)
from experiments.chaos.summary import bars, pauses_of
from experiments.common.oracle import (
    ClientLog,
    ReceivedUpdate,
    Violation,
    ViolationKind,
    live_violations,
    longest_pause_s,
    recording_violations,
)
from experiments.common.servers.clients import MODES
from specwhisper.testing.failpoints import DRAFT_POINTS, TARGET_POINTS
from specwhisper.types import LIVE_MODES, Candidates, Segment

SPOKEN = (  # start, end, tokens, utterance, whether it ends there
    (0.0, 1.0, (1, 2, 30), 1, False),
    (1.0, 2.5, (3, 4), 1, True),
    (4.0, 5.0, (5, 6), 2, False),
    (5.0, 6.0, (7,), 2, True),
)
SEGMENTS = [
    Segment(
        start_s, end_s, tokens, "".join(map(chr, tokens)), 1.0, utterance=utterance, is_utterance_end=ends
    )
    for start_s, end_s, tokens, utterance, ends in SPOKEN
]
WORDS = {1: [1, 2, 3, 4], 2: [5, 6, 7]}
GOOD = ClientLog(
    "a client",
    [ReceivedUpdate(10.0 + i, (s,), 4 * i + 1, i + 1.0) for i, s in enumerate(SEGMENTS)],
    ended_s=15,
)


def log_of(*segments: Segment) -> ClientLog:
    return ClientLog(
        "a client", [ReceivedUpdate(float(i), (segment,), i) for i, segment in enumerate(segments)]
    )


def test_a_correct_log_has_no_violations():
    assert recording_violations(GOOD, SEGMENTS) == []
    assert live_violations(GOOD, WORDS) == []


@pytest.mark.parametrize(("corrupt", "expected"), OF_RECORDING.items())
def test_a_corrupted_log_of_a_recording_has_the_expected_violation(corrupt, expected):
    assert expected in {wrong.kind for wrong in recording_violations(corrupt(GOOD), SEGMENTS)}


@pytest.mark.parametrize(("corrupt", "expected"), OF_LIVE.items())
def test_a_corrupted_log_of_live_audio_has_the_expected_violation(corrupt, expected):
    assert expected in {wrong.kind for wrong in live_violations(corrupt(GOOD), WORDS)}


def test_every_kind_of_violation_has_a_control():
    of_worlds = {
        ViolationKind.HUNG,
        ViolationKind.LEAKED_SLOTS,
        ViolationKind.BAD_EXIT,
    }  # in runs with real servers
    assert {*OF_RECORDING.values(), *OF_LIVE.values()} == set(ViolationKind) - of_worlds


def test_a_control_found_as_another_violation_does_not_trip():
    name = "a corrupted log"
    assert Control(name, ViolationKind.LOST, (ViolationKind.DIFFERENT, ViolationKind.LOST)).has_tripped
    other = Control(name, ViolationKind.LOST, (ViolationKind.DIFFERENT,), "different: 1-2 s")
    assert not other.has_tripped
    assert str(other) == "a corrupted log: tripped by different instead of lost: different: 1-2 s"


def test_a_hung_session_is_found():
    hanging = replace(GOOD, hung_s=90.0)
    assert [wrong.kind for wrong in recording_violations(hanging, SEGMENTS)] == [ViolationKind.HUNG]
    assert [wrong.kind for wrong in live_violations(hanging, WORDS)] == [ViolationKind.HUNG]


def test_violations_name_their_kind():
    first, second, *rest = SEGMENTS
    other = replace(second, tokens=(9, 9), text="other")
    for segments, message_start in (
        ((first, second, second, *rest), "duplicated"),
        ((first, *rest), "lost"),
        ((second, first, *rest), "out of order"),
        ((first, other, *rest), "different"),
        ((first, second, other, *rest), "retracted"),
    ):
        found = recording_violations(log_of(*segments), SEGMENTS)
        assert any(str(wrong).startswith(message_start) for wrong in found), (message_start, found)
    for segments, message_start in (
        ((first, second, *rest, rest[-1]), "text after the end of utterance 2"),
        ((first, first, second, *rest), "utterance 1: words repeated"),
        ((first, second, rest[1]), "utterance 2: words lost"),
        ((first, other, *rest), "utterance 1: other words"),
        ((*rest, first, second), "out of order"),
        ((first, second), "utterances ended"),
        ((first, second, replace(rest[0], start_s=0.5), rest[1]), "final text goes back in time"),
    ):
        found = live_violations(log_of(*segments), WORDS)
        assert any(str(wrong).startswith(message_start) for wrong in found), (message_start, found)


def test_live_text_may_arrive_in_other_segments():
    first, second, *rest = SEGMENTS
    parts = [replace(first, tokens=(1,)), replace(first, tokens=(2,)), second]
    assert live_violations(log_of(*parts, *rest), WORDS) == []


def test_the_audio_position_never_goes_back():
    back = ClientLog("a client", [*GOOD.updates, replace(GOOD.updates[-1], segments=(), received_s=1.0)])
    assert [wrong.kind for wrong in recording_violations(back, SEGMENTS)] == [ViolationKind.AUDIO_REWOUND]


def test_a_pause_is_the_longest_time_without_a_commit():
    log = ClientLog(
        "a client",
        [ReceivedUpdate(at_s, (), count) for at_s, count in ((1, 1), (2, 1), (5, 2), (6, 3), (9, 3))],
    )
    assert longest_pause_s(log, 0.5) == 4
    assert longest_pause_s(log, 3.0) == 2
    assert longest_pause_s(log, 6.0) is None, "no commit was to come"


def test_scenarios_follow_from_their_seeds():
    drawn = scenarios(3 * len(EVERY), 7)
    assert drawn == scenarios(3 * len(EVERY), 7) != scenarios(3 * len(EVERY), 8)
    assert {scenario.kind for scenario in drawn} == set(Kind) == set(FAULTS)
    assert {scenario.point for scenario in drawn} == {*TARGET_POINTS, *DRAFT_POINTS, ""}
    request = [client for scenario in drawn for client in scenario.clients]
    recorded = [client for client in request if isinstance(client, FileRequest)]
    assert {client.mode for client in recorded} == set(MODES)
    assert {client.option for client in recorded} == set(OPTIONS)
    assert {client.mode for client in request if isinstance(client, LiveRequest)} == set(LIVE_MODES)
    assert not {kind for kind, _ in QUICK} & SILENT, "a quick run has no silence timeouts"


def test_edited_candidates_are_lost_delayed_or_repeated():
    from random import Random

    edit = edits(Random(1))
    blocks = [Candidates(1, i, i, (i,), block_number=i) for i in range(1, 401)]
    arrived = [block.number for sent in blocks for block in edit(sent)]
    assert len(set(arrived)) < len(blocks), "some are lost"
    assert len(arrived) > len(set(arrived)), "some are repeated"
    assert arrived != sorted(arrived), "some are delayed"


def outcome(
    kind: Kind,
    *pauses_s: float | None,
    wrong: tuple[str, ...] = (),
    num_restarts: int = 0,
    num_resumes: int = 1,
) -> Outcome:
    found = tuple(Violation(ViolationKind(kind), kind) for kind in wrong)
    clients = tuple(
        ClientOutcome("a client", GOOD, found, pause, num_restarts, num_resumes) for pause in pauses_s
    )
    return Outcome(draw(1, kind), clients, (), has_fault_begun=True, took_s=1.0)


def test_each_broken_promise_fails_one_bar():
    good = [
        outcome(Kind.KILL, 0.2, 0.3),
        outcome(Kind.HALF_OPEN, 15.4),
        outcome(Kind.STOP, 10.2),
        outcome(Kind.KILL_DRAFT, 1.8),
        outcome(Kind.HALF_OPEN_DRAFT, 15.4),
        outcome(Kind.HANG_DRAFT, 15.4, num_resumes=0),
        outcome(Kind.CUT_LONG, 31.0),
        outcome(Kind.KILL_DRAFT_AT, 1.8, num_restarts=1),
    ]
    assert all(bar.holds for bar in bars(good))
    for bad in (
        outcome(Kind.KILL, 3.1),
        outcome(Kind.KILL_DRAFT_AT, 3.1),
        outcome(Kind.STOP_LONG, 18.5),
        outcome(Kind.STOP, 12.5),
        outcome(Kind.SLOW, 0.1, wrong=("lost",)),
        outcome(Kind.KILL, None),
        outcome(Kind.DRAIN_DRAFT, 3.1),
        outcome(Kind.STOP_DRAFT_LONG, 18.5),
        outcome(Kind.HANG_DRAFT, 18.5),
        outcome(Kind.CUT_LONG, 32.5),
        outcome(Kind.KILL, 0.1, num_restarts=1),
    ):
        assert sum(not bar.holds for bar in bars([*good, bad])) == 1, bad
    unmet = outcome(Kind.DRAIN_DRAFT, 0.1, num_resumes=0)
    assert [bar.name for bar in bars([*good * 2, unmet]) if not bar.holds] == [
        "kinds of faults that met no session"
    ], "its clients had ended before the draft server stopped"
    assert unmet.pauses_s == [], "a session that did not resume has no pause"
    assert outcome(Kind.STOP_DRAFT, 10.0, num_resumes=0).pauses_s == [10.0], (
        "sessions continue in the same call"
    )
    found = pauses_of(good)
    assert found is not None and found.longest_s == 31.0
    assert pauses_of([outcome(Kind.KILL, None)]) is None
    assert WITHOUT_DRAFT < LOSES_DRAFT
    sets = (WITH_SPARE, WITHOUT_DRAFT, SILENT, PASSING)
    assert sum(map(len, sets)) == len(set().union(*sets)), "a kind is frozen against one bar"
