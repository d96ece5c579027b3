"""The judge of random configs: refusals must be ours, and expected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.exactness.fuzz.drawing import all_values, drawn
from experiments.exactness.fuzz.report import bars_of_fuzzed, is_wrong, table_of_fuzzed
from experiments.exactness.fuzz.running import Fuzzed, Outcome, judged_refusal
from experiments.exactness.fuzz.values import CONFIG, GENERATION, Value
from experiments.exactness.oracle import OracleText
from specwhisper.errors import CheckpointError

TAKEN = Value(GENERATION, "max_length", 20)
MUST = Value(CONFIG, "median_filter_width", 4, refused="must be odd")
MAY = Value(GENERATION, "alignment_heads", None, may_refuse="no alignment heads")
RAISED = ValueError("transformers cannot do that")


@pytest.mark.parametrize(
    ("values", "message", "theirs", "expected"),
    [
        ((MUST, TAKEN), "it must be odd", OracleText(), Outcome.REFUSED),
        ((MUST, TAKEN), "something else", OracleText(), Outcome.DIFFERENT),
        ((MUST, TAKEN), "something else", RAISED, Outcome.DIFFERENT),
        ((MAY,), "names no alignment heads", OracleText(), Outcome.REFUSED),
        ((MAY, TAKEN), "something else", OracleText(), Outcome.DIFFERENT),
        ((TAKEN,), "something else", RAISED, Outcome.REFUSED),
        ((TAKEN,), "something else", OracleText(), Outcome.DIFFERENT),
    ],
)
def test_a_refusal_must_be_expected_or_be_transformers_too(values, message, theirs, expected):
    [case] = drawn(1, seed=0)
    result = judged_refusal(replace(case, values=values), CheckpointError(message), theirs)
    assert result.outcome is expected
    assert is_wrong(result) is (expected is Outcome.DIFFERENT)


def test_a_case_has_one_value_of_a_key_and_none_of_a_missing_file():
    for case in drawn(len(all_values()), seed=5):
        keys = [value.key for value in case.values]
        assert len(set(keys)) == len(keys) <= 4
        if "no generation_config.json" in keys:
            assert not any(value.file == GENERATION for value in case.values[1:])


def test_the_bars_allow_no_difference_and_no_raw_error():
    results = [Fuzzed(str(outcome), outcome) for outcome in Outcome]
    assert [bar.holds for bar in bars_of_fuzzed(results)] == [False, False]
    assert all(bar.holds for bar in bars_of_fuzzed([each for each in results if not is_wrong(each)]))
    assert table_of_fuzzed(results).row_count == len(Outcome)
