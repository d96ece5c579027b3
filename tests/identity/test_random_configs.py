"""Checkpoints with random configs and options: equal to transformers, or refused by our own error."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.exactness.fuzz import Outcome, all_values, drawn, run_drawn
from specwhisper.options import DecodingOptions
from tests.nightly import examples

NUM_VALUES = len(all_values())
BY_DAY = [
    (("scale_embedding=True", "max_length=absent", "suppress_tokens=[3, 9, 9, 99999, -5]"), Outcome.SAME),
    (("no generation_config.json=",), Outcome.REFUSED),  # for want of timestamps
]


@pytest.mark.parametrize(("names", "outcome"), BY_DAY)
def test_values_are_followed_or_refused(names: tuple[str, ...], outcome: Outcome):
    chosen = tuple(value for value in all_values() if value.name in names)
    [one] = drawn(1, seed=0)
    options = DecodingOptions.greedy(language="en")
    case = replace(one.case, options=options, lengths_s=(3.0,), time_logit=-1.5)
    result = run_drawn(replace(one, values=chosen, case=case))
    assert (len(chosen), result.outcome) == (len(names), outcome), result


def test_every_value_is_drawn():
    drawn_names = {value.name for case in drawn(NUM_VALUES, seed=3) for value in case.values}
    assert drawn_names == {value.name for value in all_values()}
    assert [str(case) for case in drawn(9, seed=3)] == [str(case) for case in drawn(9, seed=3)]


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(NUM_VALUES))
def test_every_value_is_followed_or_refused(number: int):
    [case] = drawn(1, seed=1, first=number)
    result = run_drawn(case)
    assert not result.is_wrong, result


@pytest.mark.nightly
@settings(deadline=None, max_examples=examples(1, 60))
@given(seed=st.integers(2, 1_000_000), number=st.integers(0, NUM_VALUES - 1))
def test_any_seed_is_followed_or_refused(seed: int, number: int):
    [case] = drawn(1, seed, first=number)
    result = run_drawn(case)
    assert not result.is_wrong, result
