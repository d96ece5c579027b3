"""The judge of random configs: refusals must be ours, and expected."""

from dataclasses import replace

import pytest

from experiments.exactness.fuzz import drawn, judged_refusal
from experiments.exactness.oracle import OracleText
from experiments.exactness.values import CONFIG, GENERATION, Value
from specwhisper.errors import CheckpointError

TAKEN = Value(GENERATION, "max_length", 20)
MUST = Value(CONFIG, "median_filter_width", 4, refused="must be odd")
MAY = Value(GENERATION, "alignment_heads", None, may_refuse="no alignment heads")
RAISED = ValueError("transformers cannot do that")


@pytest.mark.parametrize(
    ("values", "message", "theirs", "is_wrong"),
    [
        ((MUST, TAKEN), "it must be odd", OracleText(), False),
        ((MUST, TAKEN), "something else", OracleText(), True),
        ((MUST, TAKEN), "something else", RAISED, True),
        ((MAY,), "names no alignment heads", OracleText(), False),
        ((MAY, TAKEN), "something else", OracleText(), True),
        ((TAKEN,), "something else", RAISED, False),
        ((TAKEN,), "something else", OracleText(), True),
    ],
)
def test_a_refusal_must_be_expected_or_be_transformers_too(values, message, theirs, is_wrong):
    [case] = drawn(1, seed=0)
    result = judged_refusal(replace(case, values=values), CheckpointError(message), theirs)
    assert result.is_wrong is is_wrong
