"""The target's ledger and the draft's belief, over messages that are late, repeated, reordered or wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidCandidates
from specwhisper.speculation.ledger import Belief, Ledger, Offer


class TestLedger:
    def test_candidates_wait_behind_the_committed(self):
        ledger = Ledger([1, 2])
        assert ledger.offer(2, 2, [3, 4]) is Offer.FRESH
        assert (ledger.pending, ledger.held) == ([3, 4], 4)

    def test_blocks_follow_each_other(self):
        ledger = Ledger()
        assert ledger.offer(0, 0, [1, 2]) is Offer.FRESH
        assert ledger.offer(2, 0, [3]) is Offer.FRESH
        assert ledger.pending == [1, 2, 3]

    def test_a_gap_is_dropped(self):
        ledger = Ledger([1])
        assert ledger.offer(2, 1, [3]) is Offer.VOID
        assert ledger.pending == []

    def test_overlap_that_agrees_is_cut_off(self):
        ledger = Ledger([1, 2])
        assert ledger.offer(0, 0, [1, 2, 3]) is Offer.FRESH
        assert ledger.pending == [3]

    def test_a_block_about_the_past_is_of_no_use(self):
        ledger = Ledger([1, 2, 3])
        assert ledger.offer(0, 0, [1, 2]) is Offer.LATE
        assert ledger.offer(3, 3, []) is Offer.LATE
        assert ledger.pending == []

    def test_overlap_that_disagrees_is_dropped_with_all_that_was_drafted_on_it(self):
        ledger = Ledger([1, 2])  # committed before the draft's blocks arrived
        assert ledger.offer(1, 1, [7, 8]) is Offer.VOID
        assert ledger.offer(3, 1, [9]) is Offer.VOID
        assert ledger.offer(2, 1, [8]) is Offer.VOID  # drafted behind the 7
        assert ledger.pending == []
        assert ledger.offer(2, 2, [3]) is Offer.FRESH  # drafted with the 2 in sight

    def test_blocks_drafted_before_a_correction_are_stale(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2, 3])
        ledger.append([1, 5])  # 5 contradicts the 2
        assert ledger.pending == []
        assert ledger.offer(2, 0, [4]) is Offer.VOID
        assert ledger.offer(2, 1, [4]) is Offer.VOID
        assert ledger.offer(2, 2, [6]) is Offer.FRESH
        assert ledger.pending == [6]

    def test_a_stale_block_that_contains_the_correction_is_good(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2])
        ledger.append([1, 5])
        assert ledger.offer(0, 0, [1, 5, 6]) is Offer.FRESH
        assert ledger.pending == [6]

    def test_commits_that_were_foreseen_void_nothing(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2, 3, 4])
        ledger.append([1, 2])
        assert (ledger.committed, ledger.pending) == ([1, 2], [3, 4])
        assert ledger.offer(4, 0, [5]) is Offer.FRESH
        assert ledger.pending == [3, 4, 5]

    def test_a_repeated_block_changes_nothing(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2])
        ledger.offer(2, 0, [3])
        assert ledger.offer(0, 0, [1, 2]) is Offer.FRESH
        assert ledger.pending == [1, 2, 3]

    def test_a_draft_may_change_its_mind(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2, 3])
        assert ledger.offer(1, 0, [7]) is Offer.FRESH
        assert ledger.pending == [1, 7]

    def test_pending_is_bounded(self):
        ledger = Ledger(max_pending=3)
        assert ledger.offer(0, 0, [1, 2, 3, 4, 5]) is Offer.FRESH
        assert (ledger.pending, ledger.held) == ([1, 2, 3], 3)
        assert ledger.offer(4, 0, [5]) is Offer.VOID

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.integers(0, 12), st.integers(0, 12), st.lists(st.integers(0, 3), max_size=6)),
                st.lists(st.integers(0, 3), min_size=1, max_size=3),
            )
        )
    )
    def test_only_commits_move_the_committed_and_no_gap_arises(self, events):
        ledger, expected = Ledger(max_pending=8), []
        for event in events:
            if isinstance(event, tuple):
                ledger.offer(*event)
            else:
                ledger.append(event)
                expected += event
            assert ledger.committed == expected
            assert len(ledger.pending) <= 8
            assert ledger.held == len(ledger.committed) + len(ledger.pending)


class TestRecalled:
    """Candidates that the target remembers by itself."""

    def test_they_wait_from_the_beginning_and_come_before_the_drafts(self):
        ledger = Ledger(expected=[1, 2])
        assert (ledger.pending, ledger.num_reused, ledger.held) == ([1, 2], 2, 2)
        assert ledger.offer(2, 0, [3]) is Offer.FRESH
        assert (ledger.pending, ledger.num_reused) == ([1, 2, 3], 2)

    def test_a_draft_that_contradicts_them_is_not_believed_while_they_hold(self):
        ledger = Ledger(expected=[1, 2])
        assert ledger.offer(1, 0, [7, 8]) is Offer.VOID
        assert ledger.pending == [1, 2]
        assert ledger.offer(0, 0, [1, 2, 3]) is Offer.FRESH
        assert (ledger.pending, ledger.num_reused) == ([1, 2, 3], 2)

    def test_those_that_were_right_move_up(self):
        ledger = Ledger(expected=[1, 2, 3])
        ledger.append([1, 2])
        assert (ledger.pending, ledger.num_reused) == ([3], 1)

    def test_behind_a_correction_they_follow_again_and_the_drafts_do_not(self):
        ledger = Ledger(expected=[1, 2, 3, 4])
        ledger.offer(4, 0, [5])
        ledger.append([1, 9])
        assert (ledger.pending, ledger.num_reused, ledger.correction) == ([3, 4], 2, 1)
        assert ledger.offer(4, 0, [5]) is Offer.VOID  # it was drafted before the correction

    def test_a_correction_that_leaves_some_out_goes_on_behind_itself(self):
        ledger = Ledger(expected=[1, 2, 3, 4, 5])
        ledger.append([1, 4])
        assert ledger.pending == [5]

    def test_a_second_correction_in_a_row_is_the_end_of_them(self):
        ledger = Ledger(expected=[1, 2, 3, 4])
        ledger.append([9, 8])
        assert (ledger.pending, ledger.num_reused) == ([], 0)

    def test_a_correction_after_one_that_was_right_is_not(self):
        ledger = Ledger(expected=[1, 2, 3, 4, 5])
        ledger.append([9, 2, 8])
        assert ledger.pending == [4, 5]

    def test_an_ending_stands_until_a_draft_knows_better(self):
        ledger = Ledger(expected=[1, 2], ending=[8, 9])
        assert (ledger.pending, ledger.num_reused) == ([1, 2, 8, 9], 4)
        assert (ledger.expected, ledger.held) == ((1, 2), 2)  # the draft was not told of it
        assert ledger.offer(2, 0, [3, 4]) is Offer.FRESH
        assert (ledger.pending, ledger.num_reused, ledger.held) == ([1, 2, 3, 4], 2, 4)

    def test_of_an_ending_a_draft_may_foresee_the_beginning(self):
        ledger = Ledger(expected=[1], ending=[7, 8, 9])
        assert ledger.offer(1, 0, [7, 8]) is Offer.FRESH
        assert (ledger.pending, ledger.num_reused, ledger.held) == ([1, 7, 8, 9], 4, 3)
        assert ledger.offer(3, 0, [5]) is Offer.FRESH
        assert (ledger.pending, ledger.num_reused, ledger.held) == ([1, 7, 8, 5], 3, 4)

    def test_an_ending_stays_one_behind_a_correction(self):
        ledger = Ledger(expected=[1, 2], ending=[8, 9])
        ledger.append([5])
        assert (ledger.pending, ledger.expected, ledger.held) == ([2, 8, 9], (2,), 2)
        ledger.append([2, 7])
        assert (ledger.pending, ledger.expected, ledger.held) == ([9], (), 3)
        assert ledger.offer(3, 3, [4]) is Offer.FRESH
        assert (ledger.pending, ledger.num_reused) == ([4], 0)

    @given(st.data())
    def test_they_are_always_the_first_of_what_is_pending(self, data):
        token = st.integers(0, 3)
        tokens = st.lists(token, max_size=8)
        ledger = Ledger(expected=data.draw(tokens), ending=data.draw(tokens), max_pending=8)
        for _ in range(data.draw(st.integers(0, 12))):
            if data.draw(st.booleans()):
                ledger.append(data.draw(st.lists(token, max_size=4)))
            else:
                base, known = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
                own, recalled = list(ledger.expected), ledger.pending[: ledger.num_reused]
                ledger.offer(base, known, data.draw(st.lists(token, max_size=4)))
                assert ledger.pending[: len(own)] == own
                assert ledger.pending[: ledger.num_reused] == recalled[: ledger.num_reused]
            end = len(ledger.committed)
            assert len(ledger.expected) <= ledger.num_reused <= len(ledger.pending) <= 8
            assert end + len(ledger.expected) <= ledger.held <= end + len(ledger.pending)


def belief(tokens: list[int], *, sent: int, committed: int = 0, credit: int = 100) -> Belief:
    """A belief of which ``committed`` tokens are, and ``sent`` were sent in one block."""
    made = Belief(tokens[:committed], credit=credit)
    made.tokens += tokens[committed:]
    if sent > committed:
        made.take_block(sent - committed)
    return made


class TestBelief:
    def test_blocks_are_taken_once(self):
        made = belief([1, 2, 3], sent=0)
        assert made.take_block(2) == (0, (1, 2))
        assert made.take_block(2) == (2, (3,))
        assert made.take_block(2) == (3, ())
        assert (made.num_sent, made.blocks_in_flight) == (3, 3)

    def test_a_commit_that_was_foreseen_keeps_the_belief(self):
        made = belief([1, 2, 3, 4], sent=3)
        assert made.apply(0, [1, 2], held=3, blocks_answered=1, credit=7) == 4
        assert (made.tokens, made.num_committed, made.num_sent) == ([1, 2, 3, 4], 2, 3)
        assert (made.blocks_in_flight, made.credit) == (0, 7)

    def test_a_contradiction_forgets_all_behind_it(self):
        made = belief([1, 2, 3, 4], sent=4)
        assert made.apply(0, [1, 9], held=2, blocks_answered=1, credit=100) == 1
        assert (made.tokens, made.num_committed, made.num_sent) == ([1, 9], 2, 2)

    def test_tokens_beyond_the_belief_are_taken_over(self):
        made = belief([1], sent=1)
        assert made.apply(0, [1, 2, 3], held=3, blocks_answered=1, credit=100) == 1
        assert (made.tokens, made.num_committed, made.num_sent) == ([1, 2, 3], 3, 3)

    def test_what_the_target_dropped_is_offered_again(self):
        made = belief([1, 2, 3, 4], sent=4)
        made.apply(0, [1], held=2, blocks_answered=1, credit=100)
        assert made.num_sent == 2
        assert made.take_block(5) == (2, (3, 4))

    def test_nothing_is_offered_again_while_a_block_is_on_its_way(self):
        made = belief([1, 2, 3], sent=2)
        made.take_block(1)
        made.apply(0, [1], held=2, blocks_answered=1, credit=100)
        assert (made.num_sent, made.blocks_in_flight) == (3, 1)

    def test_what_was_lost_is_offered_again_when_a_later_block_left_a_gap(self):
        made = belief([1, 2, 3, 4, 5, 6], sent=0)
        for _ in range(3):
            made.take_block(2)
        made.apply(0, [], held=2, blocks_answered=1, credit=100)
        assert made.num_sent == 6
        made.apply(0, [], held=2, blocks_answered=3, credit=100)  # the second was lost, so the third was void
        assert made.take_block(5) == (2, (3, 4, 5, 6))

    def test_an_answer_to_what_was_corrected_since_is_no_loss(self):
        made = belief([1, 2, 3, 4], sent=0)
        made.take_block(2)
        made.take_block(2)
        made.apply(0, [1, 9], held=2, blocks_answered=1, credit=100)
        made.tokens += [10, 11]
        made.take_block(2)
        made.apply(2, [], held=2, blocks_answered=2, credit=100)  # drafted before the correction: void
        assert (made.num_sent, made.blocks_in_flight) == (4, 1)

    def test_after_waiting_in_vain_no_block_is_in_flight(self):
        made = belief([1, 2, 3, 4], sent=0)
        made.take_block(4)
        made.apply(0, [1], held=1, blocks_answered=0, credit=100, lost_all=True)
        assert made.blocks_in_flight == 0
        assert made.take_block(4) == (1, (2, 3, 4))

    def test_blocks_of_an_earlier_belief_are_not_counted_again(self):
        made = Belief(credit=100, num_blocks=3)
        made.tokens = [1, 2]
        assert made.blocks_in_flight == 0
        made.take_block(2)
        made.apply(0, [], held=0, blocks_answered=3, credit=100)  # of the earlier one
        assert (made.num_blocks, made.blocks_in_flight, made.num_sent) == (4, 1, 2)

    def test_a_run_begins_behind_a_contradiction(self):
        made = belief([1, 2, 3], sent=3)
        made.apply(0, [1], held=3, blocks_answered=1, credit=100)
        assert made.run_start == 0
        made.apply(1, [9, 7], held=3, blocks_answered=1, credit=100)
        assert made.run_start == 2

    def test_a_repeated_commit_changes_nothing(self):
        made = belief([1, 2, 3], sent=3)
        made.apply(0, [1, 9], held=2, blocks_answered=1, credit=50)
        before = (list(made.tokens), made.num_committed, made.num_sent, made.blocks_in_flight)
        assert made.apply(0, [1, 9], held=2, blocks_answered=1, credit=50) == 2
        assert before == (made.tokens, made.num_committed, made.num_sent, made.blocks_in_flight)

    def test_answers_may_overtake_each_other(self):
        made = belief([1, 2], sent=1)
        made.take_block(1)
        made.apply(0, [1], held=2, blocks_answered=2, credit=100)
        made.apply(0, [1], held=1, blocks_answered=1, credit=100)
        assert made.blocks_in_flight == 0

    def test_a_commit_of_nothing_only_grants_credit(self):
        made = belief([1, 2], sent=2)
        assert made.apply(0, [], held=2, blocks_answered=1, credit=33) == 2
        assert (made.num_committed, made.num_sent, made.credit) == (0, 2, 33)

    def test_a_target_that_takes_back_what_it_committed_is_refused(self):
        belief = Belief([1, 2], credit=9)
        with pytest.raises(InvalidCandidates, match="contradicts an earlier one at position 1"):
            belief.apply(1, [3], held=2, blocks_answered=0, credit=9)

    def test_a_gap_is_refused(self):
        made = belief([1, 2], sent=2)
        with pytest.raises(InvalidCandidates, match="position 1 leaves a gap behind 0"):
            made.apply(1, [2], held=2, blocks_answered=1, credit=100)

    @given(
        text=st.lists(st.integers(0, 3), min_size=1, max_size=20),
        beliefs=st.lists(st.integers(0, 3), max_size=30),
        cuts=st.lists(st.integers(1, 4), min_size=20, max_size=20),
    )
    def test_a_belief_ends_as_the_committed_text(self, text, beliefs, cuts):
        made, expected = Belief(credit=100), iter(beliefs)
        for size in cuts:
            made.tokens += [token for _, token in zip(range(3), expected, strict=False)]
            base = made.num_committed
            made.take_block(2)
            fresh = text[base : base + size]
            agreed = made.apply(base, fresh, held=base + len(fresh), blocks_answered=0, credit=100)
            assert made.tokens[: made.num_committed] == text[: made.num_committed]
            assert made.num_committed <= made.num_sent <= len(made.tokens)
            assert agreed <= len(made.tokens)
        assert made.tokens[: len(text)] == text
