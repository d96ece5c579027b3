"""In reduced precision texts part now and then: it is counted where, and how close the choice was there."""

from __future__ import annotations

import math

import pytest

from experiments.common.checkpoints import Shape
from experiments.exactness.cases import Case
from experiments.exactness.prepared import Prepared
from experiments.exactness.reduced import run_reduced

CASE = Case("reduced", Shape(seed=71), (3.0, 12.0))


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_partings_come_with_their_margins(dtype):
    result = run_reduced("reduced", Prepared(CASE), 2, dtype)
    assert result.num_recordings == 2
    assert result.num_tokens > 100
    assert len(result.margins) < 0.05 * result.num_tokens
    assert all(math.isnan(margin) or margin < 0.5 for margin in result.margins)


def test_in_float32_nothing_parts():
    result = run_reduced("reduced", Prepared(CASE), 2, "float32")
    assert (result.margins, result.num_from_float32) == ([], 0)
