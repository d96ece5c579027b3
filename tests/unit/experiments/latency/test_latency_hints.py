"""Hints of the latency experiments: their texts, their cells, and their closed forms."""

from __future__ import annotations

from difflib import SequenceMatcher
from random import Random

import pytest

from experiments.common.replay.error_process import ErrorProcess
from experiments.common.replay.trace import Decoding
from experiments.latency.cells import CHOSEN, Arm, Cell, Hints, cells_of, parse_hints
from experiments.latency.prediction.fit import realigned_of
from experiments.latency.sweep.hint_text import misleading, mostly_right, with_hints
from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode

WORDS = [f"w{n}" for n in range(2_000)]


def test_a_given_hint_has_a_tenth_of_its_words_wrong():
    text = mostly_right(WORDS, Random(1))
    matched = sum(block.size for block in SequenceMatcher(None, WORDS, text).get_matching_blocks())
    assert matched / len(WORDS) == pytest.approx(0.93, abs=0.02)  # a third of the errors adds a word


def test_an_adversarial_hint_is_right_for_a_few_words_at_a_time():
    text = misleading(WORDS, Random(1))
    assert text[:3] == WORDS[:3] and text[12:15] == WORDS[3:6]
    assert len(text) > 3 * len(WORDS)


def test_each_kind_of_hints_is_an_option_of_the_session():
    options = DecodingOptions.greedy(language="en")
    made = {kind: with_hints(options, kind, WORDS, seed=0) for kind in Hints}
    assert made[Hints.REALIGNED] == options
    assert not made[Hints.OFF].realigns and not made[Hints.OFF].hint
    assert made[Hints.GIVEN].hint.startswith("w") and made[Hints.GIVEN].realigns
    assert made[Hints.ADVERSARIAL].hint not in ("", made[Hints.GIVEN].hint)
    assert made[Hints.GIVEN] == with_hints(options, Hints.GIVEN, WORDS, seed=0)


def test_only_full_has_all_kinds_of_hints():
    modes = (Mode.TARGET_ONLY, Mode.SYNC, Mode.FULL)
    cells = cells_of(modes, [CHOSEN], 1, 1, parse_hints("realigned, off,given,off"))
    assert [str(cell) for cell in cells] == [
        "target-only",
        "target-only with a given hint",
        "sync, gamma chosen",
        "full, gamma chosen",
        "full without hints, gamma chosen",
        "full with a given hint, gamma chosen",
    ]
    assert cells[-1].arm == Arm(Mode.FULL, 1, Hints.GIVEN)
    assert not Cell(Mode.FULL, hints=Hints.ADVERSARIAL).has_closed_form
    assert not Cell(Mode.FULL, hints=Hints.GIVEN).has_closed_form
    with pytest.raises(InvalidRequest, match="--hints is 'on'"):
        parse_hints("on")


def test_draft_lengths_are_set_for_the_first_kind_of_hints():
    cells = cells_of([Mode.FULL], [2, CHOSEN], 1, 1, [Hints.REALIGNED, Hints.OFF])
    assert [(cell.hints, cell.gamma) for cell in cells] == [
        (Hints.REALIGNED, 2),
        (Hints.REALIGNED, CHOSEN),
        (Hints.OFF, CHOSEN),
    ]


@pytest.mark.parametrize("realigns", [0.0, 0.8])
def test_realignment_is_counted_in_a_trace(realigns):
    tokens = tuple(range(3_000))
    zeros = (0.0,) * len(tokens)
    decoding = Decoding("", 0, "", (1,), 0.0, tokens, zeros, zeros)
    (made,) = ErrorProcess(0.95, realigns).applied([decoding], seed=1)
    assert realigned_of([made]) == pytest.approx(0.95 * realigns, abs=0.08)
    assert realigned_of([decoding]) == 0.0
