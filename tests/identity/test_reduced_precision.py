"""In reduced precision, too, the text is what the target alone writes in it, to the last bit."""

from __future__ import annotations

import pytest

from experiments.common.models.checkpoints import Shape
from experiments.exactness.cases import Case
from experiments.exactness.prepared import Prepared
from experiments.exactness.reduced import run_reduced
from specwhisper.model.onnx.linear import sums_bytes_exactly
from tests.nightly import mostly_nightly

CASE = Case("reduced", Shape(seed=71), (3.0, 12.0))


@pytest.mark.skipif(not sums_bytes_exactly(), reason="this processor's sums of bytes overflow")
@pytest.mark.parametrize("dtype", mostly_nightly(["int8", "bfloat16"]))
def test_texts_of_all_modes_are_equal(dtype):
    result = run_reduced("reduced", Prepared(CASE), 2, dtype)
    assert result.num_recordings == 2
    assert result.num_tokens > 100
    assert result.margins == []


@pytest.mark.nightly
def test_float32_is_its_own_reference():
    result = run_reduced("reduced", Prepared(CASE), 2, "float32")
    assert (result.margins, result.num_from_float32) == ([], 0)
