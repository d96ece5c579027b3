"""In reduced precision, too, the text is what the target alone writes in it, to the last bit."""

import pytest

from experiments.common.models.checkpoints import Shape
from experiments.exactness.cases import Case
from experiments.exactness.matrix import Row, run_reduced
from experiments.exactness.prepared import Prepared
from specwhisper.model.onnx.graph import sums_bytes_exactly

BFLOAT16_STEP = 1 / 16  # between neighbouring logits of 8 to 16
ROW = Row("reduced", lambda: Prepared(Case("reduced", Shape(seed=71), (3.0, 12.0))))


@pytest.mark.skipif(not sums_bytes_exactly(), reason="this processor's sums of bytes overflow")
def test_texts_of_all_modes_are_equal_in_int8():
    result = run_reduced(ROW, "int8")
    assert result.num_recordings == 2
    assert result.num_tokens > 100
    assert result.margins == []


@pytest.mark.nightly
def test_texts_of_all_modes_differ_at_ties_only_in_bfloat16():
    """PyTorch runs it: a token's result depends on its batch, in the last bit."""
    result = run_reduced(ROW, "bfloat16")
    assert result.num_recordings == 2
    assert result.num_tokens > 100
    assert max(result.margins, default=0.0) <= BFLOAT16_STEP


@pytest.mark.nightly
def test_float32_is_its_own_reference():
    result = run_reduced(ROW, "float32")
    assert (result.margins, result.num_from_float32) == ([], 0)
