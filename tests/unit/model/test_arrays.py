"""NumPy arrays and torch tensors have the same tokens, and nearly the same numbers."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.model.arrays import kth_largest, sort, top_two
from specwhisper.model.choosing import Row, Scores, choose
from specwhisper.model.sampling import Sampling
from tests.nightly import examples
from tests.unit.model.libraries import OfLibrary, numpy_of, torch_of
from tests.unit.model.test_rules import BEGIN, NUM_TEXT, SIZE, VOCABULARY, apply_rules


def chosen(rows: Sequence[Row], logits: torch.Tensor, of: OfLibrary) -> list[Scores]:
    """Apply the rules, and choose."""
    of_rows = [(row.generated, row.candidates, row.timestamps) for row in rows]
    return choose(rows, of(apply_rules(VOCABULARY, logits, of_rows, of)))


@st.composite
def drawn_rows(draw: st.DrawFn) -> Row:
    token = st.one_of(st.integers(0, NUM_TEXT - 1), st.integers(BEGIN, SIZE - 1))
    generated, candidates = draw(st.lists(token, max_size=4)), draw(st.lists(token, max_size=4))
    sampling = st.builds(
        Sampling,
        temperature=st.sampled_from([0.2, 0.6, 1.0]),
        seed=st.integers(0, 99),
        start_sample=st.just(16_000),
        top_k=st.sampled_from([0, 5, 20]),
        top_p=st.sampled_from([1.0, 0.93, 0.57]),
    )
    return Row(
        slot=0,
        tokens=[0, *candidates],
        num_candidates=len(candidates),
        generated=generated,
        timestamps=draw(st.booleans()),
        sampling=draw(st.none() | sampling),
        acceptance_threshold=draw(st.sampled_from([None, None, 0.02])),
    )


@settings(max_examples=examples(by_day=30, at_night=1000))
@given(
    rows=st.lists(drawn_rows(), min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([1.0, 3.0, 10.0]),
    has_ties=st.booleans(),
)
def test_both_libraries_choose_the_same_tokens(rows, seed, scale, has_ties):
    num_rows = sum(row.num_candidates + 1 for row in rows)
    logits = scale * torch.randn(num_rows, SIZE, generator=torch.Generator().manual_seed(seed))
    if has_ties:
        logits = logits.bfloat16().float()
    for ours, other in zip(chosen(rows, logits, numpy_of), chosen(rows, logits, torch_of), strict=True):
        assert ours.tokens == other.tokens
        assert ours.log_probs == pytest.approx(other.log_probs, abs=1e-5)
        assert ours.margins == pytest.approx(other.margins, abs=1e-5)


@given(values=st.lists(st.floats(-9, 9, width=32) | st.sampled_from([0.0, -0.0, -np.inf]), min_size=2))
def test_equal_values_are_ordered_by_their_index(values):
    vector = np.array(values, np.float32)
    by_value = sorted(range(len(values)), key=lambda i: -values[i])  # stable
    ascending, order = sort(vector)
    assert order.tolist() == by_value[::-1]
    assert ascending.tolist() == [values[i] for i in by_value[::-1]]
    assert kth_largest(vector, 2) == values[by_value[1]]
    found = [float(x[0, 0]) for x in top_two(vector[None])]
    assert found == [by_value[0], values[by_value[0]], values[by_value[1]]]
    assert vector.tolist() == values
