"""The draft's belief, for commits that are late, repeated, reordered or wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidCandidates
from specwhisper.speculation.belief import Belief, Judgement
from specwhisper.types import ALL_BLOCKS, Commit, Window

WINDOW = Window(0, 0, 3000, (), 224)


def commit(
    belief: Belief, base: int, tokens: list[int], *, held: int, blocks_answered: int, credit: int = 100, **how
) -> Judgement:
    message = Commit(WINDOW.id, base, tuple(tokens), answered_block=blocks_answered, held=held, credit=credit)
    return belief.apply_commit(message, **how)


def new_belief(tokens: list[int], *, sent: int, committed: int = 0, credit: int = 100) -> Belief:
    """Build a belief; tokens from ``committed`` to ``sent`` are sent as one block."""
    belief = Belief(WINDOW, credit=credit)
    commit(belief, 0, tokens[:committed], held=committed, blocks_answered=0, credit=credit)
    belief.tokens += tokens[committed:]
    if sent > committed:
        belief.cut_block(sent - committed)
    return belief


def test_blocks_are_taken_once():
    belief = new_belief([1, 2, 3], sent=0)
    blocks = [belief.cut_block(2) for _ in range(3)]
    assert [(block.base, block.tokens) for block in blocks] == [(0, (1, 2)), (2, (3,)), (3, ())]
    assert (belief.num_sent, belief.blocks_in_flight) == (3, 3)


def test_a_predicted_commit_keeps_the_belief():
    belief = new_belief([1, 2, 3, 4], sent=3)
    assert commit(belief, 0, [1, 2], held=3, blocks_answered=1, credit=7).agreed == 4
    assert (belief.tokens, belief.num_committed, belief.num_sent) == ([1, 2, 3, 4], 2, 3)
    assert (belief.blocks_in_flight, belief.credit) == (0, 7)


def test_lost_tokens_are_sent_again_after_a_gap():
    belief = new_belief([1, 2, 3, 4, 5, 6], sent=0)
    for _ in range(3):
        belief.cut_block(2)
    commit(belief, 0, [], held=2, blocks_answered=1)
    assert belief.num_sent == 6
    commit(belief, 0, [], held=2, blocks_answered=3)  # the second was lost: the third is void
    block = belief.cut_block(5)
    assert (block.base, block.tokens) == (2, (3, 4, 5, 6))


def test_an_answer_to_a_corrected_block_is_no_loss():
    belief = new_belief([1, 2, 3, 4], sent=0)
    belief.cut_block(2)
    belief.cut_block(2)
    commit(belief, 0, [1, 9], held=2, blocks_answered=1)
    belief.tokens += [10, 11]
    belief.cut_block(2)
    commit(belief, 2, [], held=2, blocks_answered=2)  # drafted before the correction: void
    assert (belief.num_sent, belief.blocks_in_flight) == (4, 1)


def test_after_waiting_in_vain_no_block_is_in_flight():
    belief = new_belief([1, 2, 3, 4], sent=0)
    belief.cut_block(4)
    commit(belief, 0, [1], held=1, blocks_answered=0, lost_all=True)
    assert belief.blocks_in_flight == 0
    block = belief.cut_block(4)
    assert (block.base, block.tokens) == (1, (2, 3, 4))


def test_blocks_of_an_earlier_belief_are_not_counted_again():
    belief = Belief(WINDOW, credit=100, num_blocks=3)
    belief.tokens = [1, 2]
    assert belief.blocks_in_flight == 0
    belief.cut_block(2)
    commit(belief, 0, [], held=0, blocks_answered=3)  # of the earlier one
    assert (belief.num_blocks, belief.blocks_in_flight, belief.num_sent) == (4, 1, 2)


def test_an_answer_to_all_blocks_answers_those_that_were_sent_so_far():
    belief = new_belief([1, 2, 3, 4], sent=0)
    belief.cut_block(2)
    belief.cut_block(1)
    commit(belief, 0, [], held=0, blocks_answered=ALL_BLOCKS)
    assert belief.blocks_in_flight == 0
    block = belief.cut_block(3)
    assert (block.base, block.tokens, belief.blocks_in_flight) == (0, (1, 2, 3), 1)


def test_answers_may_overtake_each_other():
    belief = new_belief([1, 2], sent=1)
    belief.cut_block(1)
    commit(belief, 0, [1], held=2, blocks_answered=2)
    commit(belief, 0, [1], held=1, blocks_answered=1)
    assert belief.blocks_in_flight == 0


def test_a_target_that_takes_back_what_it_committed_is_refused():
    belief = new_belief([1, 2], sent=0, committed=2)
    with pytest.raises(InvalidCandidates, match="contradicts an earlier one at position 1"):
        commit(belief, 1, [3], held=2, blocks_answered=0, credit=9)


def test_a_gap_is_refused():
    belief = new_belief([1, 2], sent=2)
    with pytest.raises(InvalidCandidates, match="position 1 leaves a gap after 0"):
        commit(belief, 1, [2], held=2, blocks_answered=1)


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    beliefs=st.lists(st.integers(0, 3), max_size=30),
    cuts=st.lists(st.integers(1, 4), min_size=20, max_size=20),
)
def test_a_belief_ends_as_the_committed_text(text, beliefs, cuts):
    belief, expected = Belief(WINDOW, credit=100), iter(beliefs)
    for size in cuts:
        belief.tokens += [token for _, token in zip(range(3), expected, strict=False)]
        base = belief.num_committed
        belief.cut_block(2)
        fresh = text[base : base + size]
        agreed = commit(belief, base, fresh, held=base + len(fresh), blocks_answered=0).agreed
        assert belief.tokens[: belief.num_committed] == text[: belief.num_committed]
        assert belief.num_committed <= belief.num_sent <= len(belief.tokens)
        assert agreed <= len(belief.tokens)
    assert belief.tokens[: len(text)] == text
