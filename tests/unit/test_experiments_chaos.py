"""The oracle finds every way in which a client can be told wrong things, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.chaos.asked import OPTIONS, Recorded, Spoken
from experiments.chaos.controls import Control
from experiments.chaos.faults import FAULTS, edits
from experiments.chaos.runs import Heard, Outcome
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
from experiments.chaos.spoiling import OF_LIVE, OF_RECORDING
from experiments.chaos.summary import bars, pauses_of
from experiments.common.oracle import (
    Log,
    Told,
    Violation,
    Wrong,
    live_violations,
    pause_s,
    recording_violations,
)
from experiments.common.servers.clients import MODES
from specwhisper.testing.failpoints import DRAFT_POINTS, TARGET_POINTS
from specwhisper.types import Candidates, Segment

SAID = (  # start, end, tokens, utterance, whether it ends there
    (0.0, 1.0, (1, 2, 30), 1, False),
    (1.0, 2.5, (3, 4), 1, True),
    (4.0, 5.0, (5, 6), 2, False),
    (5.0, 6.0, (7,), 2, True),
)
SEGMENTS = [
    Segment(
        start_s, end_s, tokens, "".join(map(chr, tokens)), 1.0, utterance=utterance, is_utterance_end=ends
    )
    for start_s, end_s, tokens, utterance, ends in SAID
]
WORDS = {1: [1, 2, 3, 4], 2: [5, 6, 7]}
GOOD = Log("a client", [Told(10.0 + i, (s,), 4 * i + 1, i + 1.0) for i, s in enumerate(SEGMENTS)], ended_s=15)


def told(*segments: Segment) -> Log:
    return Log("a client", [Told(float(i), (segment,), i) for i, segment in enumerate(segments)])


def test_a_good_log_is_good():
    assert recording_violations(GOOD, SEGMENTS) == []
    assert live_violations(GOOD, WORDS) == []


@pytest.mark.parametrize(("spoil", "expected"), OF_RECORDING.items())
def test_a_recording_whose_log_was_spoilt_is_found_by_what_it_is(spoil, expected):
    assert expected in {wrong.kind for wrong in recording_violations(spoil(GOOD), SEGMENTS)}


@pytest.mark.parametrize(("spoil", "expected"), OF_LIVE.items())
def test_live_audio_whose_log_was_spoilt_is_found_by_what_it_is(spoil, expected):
    assert expected in {wrong.kind for wrong in live_violations(spoil(GOOD), WORDS)}


def test_everything_that_a_log_can_be_found_by_has_a_control():
    of_worlds = {Wrong.HUNG, Wrong.KEPT_SLOTS, Wrong.BAD_EXIT}  # by runs with real servers
    assert {*OF_RECORDING.values(), *OF_LIVE.values()} == set(Wrong) - of_worlds


def test_a_control_that_another_violation_finds_does_not_hold():
    name = "a log that was spoilt"
    assert Control(name, Wrong.LOST, (Wrong.DIFFERENT, Wrong.LOST)).has_tripped
    other = Control(name, Wrong.LOST, (Wrong.DIFFERENT,), "different: 1-2 s")
    assert not other.has_tripped
    assert str(other) == "a log that was spoilt: tripped by different instead of lost: different: 1-2 s"


def test_a_session_that_hangs_is_found():
    hanging = replace(GOOD, hung_s=90.0)
    assert [wrong.kind for wrong in recording_violations(hanging, SEGMENTS)] == [Wrong.HUNG]
    assert [wrong.kind for wrong in live_violations(hanging, WORDS)] == [Wrong.HUNG]


def test_what_is_wrong_is_named():
    first, second, *rest = SEGMENTS
    other = replace(second, tokens=(9, 9), text="other")
    for segments, says in (
        ((first, second, second, *rest), "told twice"),
        ((first, *rest), "lost"),
        ((second, first, *rest), "told out of order"),
        ((first, other, *rest), "different"),
        ((first, second, other, *rest), "retracted"),
    ):
        found = recording_violations(told(*segments), SEGMENTS)
        assert any(str(wrong).startswith(says) for wrong in found), (says, found)
    for segments, says in (
        ((first, second, *rest, rest[-1]), "told behind its end: utterance 2"),
        ((first, first, second, *rest), "utterance 1: words repeated"),
        ((first, second, rest[1]), "utterance 2: words lost"),
        ((first, other, *rest), "utterance 1: other words"),
        ((*rest, first, second), "told out of order"),
        ((first, second), "utterances ended"),
        ((first, second, replace(rest[0], start_s=0.5), rest[1]), "final text goes back in time"),
    ):
        found = live_violations(told(*segments), WORDS)
        assert any(str(wrong).startswith(says) for wrong in found), (says, found)


def test_live_text_may_be_told_in_other_parts():
    first, second, *rest = SEGMENTS
    parts = [replace(first, tokens=(1,)), replace(first, tokens=(2,)), second]
    assert live_violations(told(*parts, *rest), WORDS) == []


def test_audio_is_not_received_again():
    back = Log("a client", [*GOOD.told, replace(GOOD.told[-1], segments=(), received_s=1.0)])
    assert [wrong.kind for wrong in recording_violations(back, SEGMENTS)] == [Wrong.HEARD_AGAIN]


def test_a_pause_is_the_longest_time_without_a_commit():
    log = Log("a client", [Told(at_s, (), count) for at_s, count in ((1, 1), (2, 1), (5, 2), (6, 3), (9, 3))])
    assert pause_s(log, 0.5) == 4
    assert pause_s(log, 3.0) == 2
    assert pause_s(log, 6.0) is None, "nothing was to come"


def test_scenarios_follow_from_their_seeds():
    drawn = scenarios(3 * len(EVERY), 7)
    assert drawn == scenarios(3 * len(EVERY), 7) != scenarios(3 * len(EVERY), 8)
    assert {scenario.kind for scenario in drawn} == set(Kind) == set(FAULTS)
    assert {scenario.point for scenario in drawn} == {*TARGET_POINTS, *DRAFT_POINTS, ""}
    asked = [client for scenario in drawn for client in scenario.clients]
    recorded = [client for client in asked if isinstance(client, Recorded)]
    assert {client.mode for client in recorded} == set(MODES)
    assert {client.option for client in recorded} == set(OPTIONS)
    assert {client.mode for client in asked if isinstance(client, Spoken)} == set(MODES)
    assert not {kind for kind, _ in QUICK} & SILENT, "a quick run waits for nobody to notice silence"


def test_spoilt_candidates_are_lost_late_or_repeated():
    from random import Random

    edit = edits(Random(1))
    blocks = [Candidates(1, i, i, (i,), number=i) for i in range(1, 401)]
    arrived = [block.number for given in blocks for block in edit(given)]
    assert len(set(arrived)) < len(blocks), "some are lost"
    assert len(arrived) > len(set(arrived)), "some come twice"
    assert arrived != sorted(arrived), "some come late"


def outcome(
    kind: Kind,
    *pauses_s: float | None,
    wrong: tuple[str, ...] = (),
    num_restarts: int = 0,
    num_resumes: int = 1,
) -> Outcome:
    found = tuple(Violation(Wrong(kind), kind) for kind in wrong)
    heard = tuple(Heard("a client", GOOD, found, pause, num_restarts, num_resumes) for pause in pauses_s)
    return Outcome(draw(1, kind), heard, (), has_struck=True, took_s=1.0)


def test_bars_hold_what_is_promised():
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
    ], "its clients were done before the draft server stopped"
    assert unmet.pauses_s == [], "what nobody resumed is no pause"
    assert outcome(Kind.STOP_DRAFT, 10.0, num_resumes=0).pauses_s == [10.0], "all goes on in the same call"
    found = pauses_of(good)
    assert found is not None and found.longest_s == 31.0
    assert pauses_of([outcome(Kind.KILL, None)]) is None
    assert WITHOUT_DRAFT < LOSES_DRAFT
    sets = (WITH_SPARE, WITHOUT_DRAFT, SILENT, PASSING)
    assert sum(map(len, sets)) == len(set().union(*sets)), "a kind is held against one bar"
