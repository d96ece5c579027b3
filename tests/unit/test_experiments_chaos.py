"""The oracle finds every way in which a client can be told wrong things, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.chaos.asked import MODES, OPTIONS, Recorded, Spoken
from experiments.chaos.controls import SPOILT
from experiments.chaos.faults import FAULTS, edits
from experiments.chaos.oracle import Log, Told, live_violations, pause_s, recording_violations
from experiments.chaos.runs import Heard, Outcome
from experiments.chaos.scenarios import EVERY, PASSING, QUICK, SILENT, WITH_SPARE, Kind, draw, scenarios
from experiments.chaos.summary import bars, pauses_of
from specwhisper.types import Candidates, Segment
from specwhisper.wire.failpoints import DRAFT_POINTS, TARGET_POINTS

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


@pytest.mark.parametrize("name", SPOILT)
def test_a_log_that_was_spoilt_is_not(name):
    spoilt = SPOILT[name](GOOD)
    assert recording_violations(spoilt, SEGMENTS)
    assert live_violations(spoilt, WORDS)


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
        assert any(line.startswith(says) for line in found), (says, found)
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
        assert any(line.startswith(says) for line in found), (says, found)


def test_live_text_may_be_told_in_other_parts():
    first, second, *rest = SEGMENTS
    parts = [replace(first, tokens=(1,)), replace(first, tokens=(2,)), second]
    assert live_violations(told(*parts, *rest), WORDS) == []


def test_audio_is_not_received_again():
    back = Log("a client", [*GOOD.told, replace(GOOD.told[-1], segments=(), received_s=1.0)])
    assert recording_violations(back, SEGMENTS) == ["audio was received again"]


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


def outcome(kind: Kind, *pauses_s: float | None, wrong: tuple[str, ...] = ()) -> Outcome:
    heard = tuple(Heard("a client", GOOD, wrong, pause) for pause in pauses_s)
    return Outcome(draw(1, kind), heard, (), has_struck=True, took_s=1.0)


def test_bars_hold_what_is_promised():
    good = [outcome(Kind.KILL, 0.2, 0.3), outcome(Kind.HALF_OPEN, 15.4), outcome(Kind.STOP, 10.2)]
    assert all(bar.holds for bar in bars(good))
    for bad in (
        outcome(Kind.KILL, 3.1),
        outcome(Kind.STOP_LONG, 18.5),
        outcome(Kind.STOP, 12.5),
        outcome(Kind.SLOW, 0.1, wrong=("lost",)),
        outcome(Kind.DRAIN, None),
    ):
        assert sum(not bar.holds for bar in bars([*good, bad])) == 1, bad
    found = pauses_of(good)
    assert found is not None and found.longest_s == 15.4
    assert pauses_of([outcome(Kind.KILL, None)]) is None
    assert not WITH_SPARE & SILENT and not PASSING & (WITH_SPARE | SILENT)
