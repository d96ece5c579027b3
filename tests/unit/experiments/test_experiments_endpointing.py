"""Utterances with hesitations, and what became of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.agents.clients import Text
from experiments.agents.takes import GAP_S, latencies, take_of
from experiments.endpointing.measures import HESITATION_S, Ended, hesitating, make_take, outcome_of
from specwhisper.types import SAMPLE_RATE

SECOND = np.full(SAMPLE_RATE, 1000, np.int16)


def test_an_utterance_hesitates_where_it_is_quietest():
    utterance = np.concatenate([SECOND, SECOND // 10, SECOND])
    longer = hesitating(utterance)
    assert len(longer) - len(utterance) == round(HESITATION_S * SAMPLE_RATE)
    (silent,) = np.nonzero(longer == 0)
    assert SAMPLE_RATE <= silent[0] and silent[-1] < len(longer) - SAMPLE_RATE
    assert np.array_equal(np.delete(longer, silent), utterance)


def test_every_second_utterance_of_a_take_hesitates():
    take = make_take([SECOND] * 4, 4, np.random.default_rng(0))
    lengths = [end_s - begin_s for begin_s, end_s in take.spans_s]
    assert lengths == pytest.approx([1, 1 + HESITATION_S] * 2)


def test_an_utterance_without_a_text_after_its_end_counts_as_late():
    take = take_of([SECOND] * 3)
    (_, first), (begin_s, second), _ = take.spans_s
    texts = [
        Text(first + 0.2, "final", "one,"),
        Text(first + 0.4, "final", "two"),
        Text(begin_s + 0.5, "final", "cut off at a pause"),
        Text(second + 0.5, "interim", "not final"),
    ]
    assert latencies(take, texts) == pytest.approx([0.4, GAP_S, GAP_S])


def test_outcomes_of_utterances():
    take = take_of([SECOND] * 3)
    (_, first), (begin_s, second), _ = take.spans_s
    outcome = outcome_of(
        take,
        [
            Ended(first + 0.3, first + 0.1, "whole"),
            Ended(begin_s + 0.7, begin_s + 0.5, "Cut,"),
            Ended(second + 0.5, second + 0.1, "rest"),
        ],
    )
    assert outcome.latencies_s == pytest.approx((0.3, 0.5, GAP_S))
    assert outcome.num_cut == 1
    assert outcome.texts == ("whole", "cut rest", "")
    assert outcome.num_unlike(replace(outcome, texts=("whole", "cut", ""))) == 1
    assert outcome.quantile_s(0.5) == pytest.approx(0.5)
