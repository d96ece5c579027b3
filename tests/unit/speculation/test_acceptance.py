"""Greedy acceptance appends the accepted prefix and the correction token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.acceptance import Verdict, accept

END = 9


@pytest.mark.parametrize(
    ("candidates", "choices", "budget", "expected"),
    [
        ([], [4], 10, Verdict((4,), 0, False)),  # no candidates
        ([1, 2], [1, 2, 3], 10, Verdict((1, 2, 3), 2, False)),  # all accepted, and the correction token
        ([1, 2], [1, 5, 3], 10, Verdict((1, 5), 1, False)),  # the candidates after the correction are void
        ([1, 2], [5, 2, 3], 10, Verdict((5,), 0, False)),
        ([1, END], [1, END, 3], 10, Verdict((1, END), 2, True)),  # nothing follows the end
        ([1, 2], [END, 2, 3], 10, Verdict((END,), 0, True)),
        ([1, 2], [1, 2, END], 10, Verdict((1, 2, END), 2, True)),
        ([1, 2], [1, 2, 3], 2, Verdict((1, 2), 2, True)),  # the window is full
        ([1, 2], [1, 2, 3], 1, Verdict((1,), 1, True)),
        ([], [4], 1, Verdict((4,), 0, True)),
    ],
)
def test_the_verdict_is_the_accepted_prefix_and_the_correction_token(candidates, choices, budget, expected):
    assert accept(candidates, choices, ends={END}, budget=budget) == expected


tokens = st.integers(0, END)


@given(
    text=st.lists(tokens, min_size=1, max_size=30),
    blocks=st.lists(st.lists(tokens, max_size=5), max_size=40),
    budget=st.integers(1, 20),
)
def test_the_text_is_the_targets_for_any_candidates(text, blocks, budget):
    """Here the target's choices do not depend on the prefix: it repeats ``text``."""
    expected = [text[i % len(text)] for i in range(budget)]
    if END in expected:
        expected = expected[: expected.index(END) + 1]
    written: list[int] = []
    for block in [*blocks, *[[]] * budget]:
        at = len(written)
        choices = [text[(at + i) % len(text)] for i in range(len(block) + 1)]
        verdict = accept(block, choices, ends={END}, budget=budget - at)
        assert verdict.tokens[: verdict.num_accepted] == tuple(block[: verdict.num_accepted])
        assert len(verdict.tokens) - verdict.num_accepted <= 1
        written += verdict.tokens
        if verdict.is_final:
            break
    assert verdict.is_final
    assert written == expected
