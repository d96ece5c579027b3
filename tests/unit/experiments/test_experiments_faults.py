"""The checks of experiments.faults find what they look for, and each bar fails for its own reason."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from experiments.common.models.scripted import END
from experiments.faults import chaos, soak
from experiments.faults.chaos import Outcome, Session, draw
from experiments.faults.kinds import KILL, KINDS
from experiments.faults.oracle import (
    ClientLog,
    ReceivedUpdate,
    Violation,
    ViolationKind,
    live_violations,
    longest_pause_s,
    recording_violations,
)
from experiments.faults.soak import Soaked
from specwhisper.types import Segment

Texts = list[tuple[Segment, ...]]  # the final segments of each update that has some


def with_texts(edit: Callable[[Texts], Texts]) -> Callable[[ClientLog], ClientLog]:
    """Return a corruption of final text; ``edit`` may also add an update."""

    def corrupt(log: ClientLog) -> ClientLog:
        texts = iter(edit([update.segments for update in log.updates if update.segments]))
        updates = [replace(each, segments=next(texts)) if each.segments else each for each in log.updates]
        updates += [replace(updates[-1], segments=text) for text in texts]
        return replace(log, updates=updates)

    return corrupt


def with_update(**changes: float) -> Callable[[ClientLog], ClientLog]:
    """Return a corruption that repeats the last update with changes, and without text."""
    return lambda log: replace(log, updates=[*log.updates, replace(log.updates[-1], segments=(), **changes)])


def _altered(segment: Segment) -> Segment:
    """Replace the first letter, or add one."""
    letters = [i for i, token in enumerate(segment.tokens) if token < END]
    at = letters[0] if letters else 0
    tokens = (*segment.tokens[:at], (segment.tokens[at] + 1) % END, *segment.tokens[at + 1 :])
    return replace(segment, tokens=tokens, text="another")


def _unended(text: Sequence[Segment]) -> tuple[Segment, ...]:
    return tuple(replace(segment, is_utterance_end=False) for segment in text)


# Each with the violation that a recording's judge finds, and that of live audio.
CORRUPTIONS: dict[str, tuple[Callable[[ClientLog], ClientLog], str, str]] = {
    "with commits withdrawn": (with_update(num_committed=0), *2 * ("COMMITS_WITHDRAWN",)),
    "with audio rewound": (with_update(received_s=0.0), *2 * ("AUDIO_REWOUND",)),
    "failed after all text": (lambda log: replace(log, error="it ended"), *2 * ("FAILED",)),
    "hanging": (lambda log: replace(log, hung_s=90.0), "", "HUNG"),
    "swapped": (with_texts(lambda texts: [texts[-1], *texts[1:-1], texts[0]]), *2 * ("OUT_OF_ORDER",)),
    "duplicated": (with_texts(lambda texts: [2 * texts[0], *texts[1:]]), "DUPLICATED", "REPEATED_WORDS"),
    "dropped": (with_texts(lambda texts: [(), *texts[1:]]), "LOST", "LOST_WORDS"),
    "silent": (with_texts(lambda texts: [()] * len(texts)), "LOST", "LOST_WORDS"),
    "retracted": (with_texts(lambda texts: [*texts, (_altered(texts[0][0]),)]), "RETRACTED", ""),
    "altered": (
        with_texts(lambda texts: [(_altered(texts[0][0]), *texts[0][1:]), *texts[1:]]),
        *("DIFFERENT", "OTHER_WORDS"),
    ),
    "continued after its end": (
        with_texts(lambda texts: [*texts, _unended(texts[-1][-1:])]),
        *("", "AFTER_END"),
    ),
    "unended": (with_texts(lambda texts: list(map(_unended, texts))), "", "WRONG_ENDS"),
    "backdated": (
        with_texts(lambda texts: [*texts[:-1], (*texts[-1][:-1], replace(texts[-1][-1], start_s=-1.0))]),
        *("", "BACK_IN_TIME"),
    ),
}

SPOKEN = (  # start, end, tokens, utterance, whether it ends there
    (0.0, 1.0, (1, 2, 30), 1, False),
    (1.0, 2.5, (3, 4), 1, True),
    (4.0, 5.0, (5, 6), 2, False),
    (5.0, 6.0, (7,), 2, True),
)
SEGMENTS = [
    Segment(begin_s, end_s, tokens, str(tokens), 1.0, utterance=utterance, is_utterance_end=ends)
    for begin_s, end_s, tokens, utterance, ends in SPOKEN
]
WORDS = {1: [1, 2, 3, 4], 2: [5, 6, 7]}
UPDATES = [ReceivedUpdate(10.0 + i, (each,), 4 * i + 1, i + 1.0) for i, each in enumerate(SEGMENTS)]
GOOD = ClientLog("a client", UPDATES, ended_s=15)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corrupted_log_is_found(name):
    assert recording_violations(GOOD, SEGMENTS) == [] == live_violations(GOOD, WORDS)
    corrupt, of_recording, of_live = CORRUPTIONS[name]
    found = recording_violations(corrupt(GOOD), SEGMENTS), live_violations(corrupt(GOOD), WORDS)
    for violations, expected in zip(found, (of_recording, of_live), strict=True):
        if expected:
            assert ViolationKind[expected] in {wrong.kind for wrong in violations}


def test_live_text_may_arrive_in_other_segments():
    first, *rest = SEGMENTS
    parts = [replace(first, tokens=(1,)), replace(first, tokens=(2,)), *rest]
    updates = [ReceivedUpdate(float(i), (each,), i) for i, each in enumerate(parts)]
    assert live_violations(ClientLog("a client", updates), WORDS) == []


def test_a_pause_is_the_longest_time_without_a_commit():
    commits = ((1, 1), (2, 1), (5, 2), (6, 3), (9, 3))
    log = ClientLog("a client", [ReceivedUpdate(at_s, (), count) for at_s, count in commits])
    assert longest_pause_s(log, 0.5) == 4
    assert longest_pause_s(log, 3.0) == 2
    assert longest_pause_s(log, 6.0) is None, "no commit was to come"


def outcome(kind, *pauses_s, wrong=(), num_restarts=0) -> Outcome:
    found = tuple(Violation(each, each) for each in wrong)
    sessions = tuple(Session("a client", found, pause_s, num_restarts) for pause_s in pauses_s)
    scenario = replace(draw(1, kind), lasts_s=kind.lasts_s[0])
    return Outcome(scenario, sessions, (), has_fault_begun=True, took_s=1.0)


@pytest.mark.parametrize(
    "bad",
    [
        *(outcome(kind, 1.5 * kind.pause.value[1] + kind.lasts_s[0]) for kind in KINDS if kind.pause),
        outcome(KILL, 0.1, wrong=(ViolationKind.LOST,)),
        outcome(KILL, 0.1, num_restarts=1),
        replace(outcome(KILL, 0.1), violations=(Violation(ViolationKind.BAD_EXIT, "9"),)),
    ],
)
def test_what_goes_wrong_fails_one_bar(bad):
    good = [outcome(kind, 0.1 + kind.lasts_s[0]) for kind in KINDS]
    assert all(bar.holds for bar in chaos.bars(good))
    assert sum(not bar.holds for bar in chaos.bars([*good, bad])) == 1


def soaked(growth_per_session: float = 0.5, errors: tuple[str, ...] = (), **last: int) -> Soaked:
    """Twenty looks at a process that grows steadily, and swings by 300 KiB."""
    samples = [
        {
            "num_sessions": num,
            "heap_bytes": 1024 * (50_000 + 150 * (-1) ** (num // 50) + num * growth_per_session),
            "files": 20,
            "threads": 10,
            "tasks": 9,
        }
        for num in range(200, 1_200, 50)
    ]
    return Soaked(Counter({"whole": 100}), list(errors), {"target": [*samples[:-1], samples[-1] | last]})


@pytest.mark.parametrize(
    ("ours", "control", "num_short"),
    [
        (soaked(threads=13), soaked(8.0), 0),  # a pool filled
        (soaked(soak.MAX_GROWTH_KIB + 1), soaked(8.0), 1),
        (soaked(errors=("one failed",)), soaked(8.0), 1),
        (soaked(tasks=10), soaked(8.0), 1),
        (soaked(taken_slots=1), soaked(8.0), 1),
        (soaked(), soaked(1.0), 1),  # a leak would not be found
    ],
)
def test_each_fault_of_a_soak_fails_one_bar(ours, control, num_short):
    assert sum(not bar.holds for bar in soak.soak_bars(ours, control)) == num_short
