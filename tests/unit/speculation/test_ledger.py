"""The target's ledger, for blocks that are late, repeated, reordered or wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.ledger import Ledger, Offer


class TestLedger:
    def test_candidates_follow_the_committed_tokens(self):
        ledger = Ledger([1, 2])
        assert ledger.offer(2, 2, [3, 4]) is Offer.FRESH
        assert (ledger.candidates(), ledger.held) == ([3, 4], 4)

    def test_blocks_follow_each_other(self):
        ledger = Ledger()
        assert ledger.offer(0, 0, [1, 2]) is Offer.FRESH
        assert ledger.offer(2, 0, [3]) is Offer.FRESH
        assert ledger.candidates() == [1, 2, 3]

    def test_a_gap_is_dropped(self):
        ledger = Ledger([1])
        assert ledger.offer(2, 1, [3]) is Offer.VOID
        assert ledger.candidates() == []

    def test_overlap_that_agrees_is_cut_off(self):
        ledger = Ledger([1, 2])
        assert ledger.offer(0, 0, [1, 2, 3]) is Offer.FRESH
        assert ledger.candidates() == [3]

    def test_a_block_of_committed_tokens_is_late(self):
        ledger = Ledger([1, 2, 3])
        assert ledger.offer(0, 0, [1, 2]) is Offer.LATE
        assert ledger.offer(3, 3, []) is Offer.LATE
        assert ledger.candidates() == []

    def test_overlap_that_disagrees_is_dropped_with_all_that_was_drafted_on_it(self):
        ledger = Ledger([1, 2])  # committed before the draft's blocks arrived
        assert ledger.offer(1, 1, [7, 8]) is Offer.VOID
        assert ledger.offer(3, 1, [9]) is Offer.VOID
        assert ledger.offer(2, 1, [8]) is Offer.VOID  # drafted after the 7
        assert ledger.candidates() == []
        assert ledger.offer(2, 2, [3]) is Offer.FRESH  # drafted after the 2 was applied

    def test_blocks_drafted_before_a_correction_are_stale(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2, 3])
        ledger.append([1, 5])  # 5 contradicts the 2
        assert ledger.candidates() == []
        assert ledger.offer(2, 0, [4]) is Offer.VOID
        assert ledger.offer(2, 1, [4]) is Offer.VOID
        assert ledger.offer(2, 2, [6]) is Offer.FRESH
        assert ledger.candidates() == [6]

    def test_an_old_block_that_contains_the_correction_is_taken(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2])
        ledger.append([1, 5])
        assert ledger.offer(0, 0, [1, 5, 6]) is Offer.FRESH
        assert ledger.candidates() == [6]

    def test_predicted_commits_void_nothing(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2, 3, 4])
        ledger.append([1, 2])
        assert (ledger.committed, ledger.candidates()) == ([1, 2], [3, 4])
        assert ledger.offer(4, 0, [5]) is Offer.FRESH
        assert ledger.candidates() == [3, 4, 5]

    def test_a_repeated_block_changes_nothing(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2])
        ledger.offer(2, 0, [3])
        assert ledger.offer(0, 0, [1, 2]) is Offer.FRESH
        assert ledger.candidates() == [1, 2, 3]

    def test_a_draft_may_replace_pending_candidates(self):
        ledger = Ledger()
        ledger.offer(0, 0, [1, 2, 3])
        assert ledger.offer(1, 0, [7]) is Offer.FRESH
        assert ledger.candidates() == [1, 7]

    def test_the_number_of_pending_candidates_is_limited(self):
        ledger = Ledger(max_pending=3)
        assert ledger.offer(0, 0, [1, 2, 3, 4, 5]) is Offer.FRESH
        assert (ledger.candidates(), ledger.held) == ([1, 2, 3], 3)
        assert ledger.offer(4, 0, [5]) is Offer.VOID

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.integers(0, 12), st.integers(0, 12), st.lists(st.integers(0, 3), max_size=6)),
                st.lists(st.integers(0, 3), min_size=1, max_size=3),
            )
        )
    )
    def test_only_commits_change_committed_tokens_and_candidates_follow_them(self, events):
        ledger, expected = Ledger(max_pending=8), []
        for event in events:
            if isinstance(event, tuple):
                ledger.offer(*event)
            else:
                ledger.append(event)
                expected += event
            assert ledger.committed == expected
            assert ledger.num_pending <= 8
            assert ledger.held == len(ledger.committed) + ledger.num_pending


class TestReused:
    """Candidates from the target's own earlier decoding."""

    def test_they_come_before_candidates_of_a_draft(self):
        ledger = Ledger(reused=[1, 2])
        assert (ledger.candidates(), ledger.num_reused, ledger.held) == ([1, 2], 2, 2)
        assert ledger.offer(2, 0, [3]) is Offer.FRESH
        assert (ledger.candidates(), ledger.num_reused) == ([1, 2, 3], 2)

    def test_a_block_that_contradicts_them_is_void(self):
        ledger = Ledger(reused=[1, 2])
        assert ledger.offer(1, 0, [7, 8]) is Offer.VOID
        assert ledger.candidates() == [1, 2]
        assert ledger.offer(0, 0, [1, 2, 3]) is Offer.FRESH
        assert (ledger.candidates(), ledger.num_reused) == ([1, 2, 3], 2)

    def test_accepted_ones_are_removed(self):
        ledger = Ledger(reused=[1, 2, 3])
        ledger.append([1, 2])
        assert (ledger.candidates(), ledger.num_reused) == ([3], 1)

    def test_after_a_correction_they_follow_again_and_drafted_ones_do_not(self):
        ledger = Ledger(reused=[1, 2, 3, 4])
        ledger.offer(4, 0, [5])
        ledger.append([1, 9])
        assert (ledger.candidates(), ledger.num_reused, ledger.correction) == ([3, 4], 2, 1)
        assert ledger.offer(4, 0, [5]) is Offer.VOID  # it was drafted before the correction

    def test_a_correction_may_skip_reused_candidates(self):
        ledger = Ledger(reused=[1, 2, 3, 4, 5])
        ledger.append([1, 4])
        assert ledger.candidates() == [5]

    def test_two_corrections_in_a_row_void_them(self):
        ledger = Ledger(reused=[1, 2, 3, 4])
        ledger.append([9, 8])
        assert (ledger.candidates(), ledger.num_reused) == ([], 0)

    def test_a_correction_after_an_accepted_one_keeps_them(self):
        ledger = Ledger(reused=[1, 2, 3, 4, 5])
        ledger.append([9, 2, 8])
        assert ledger.candidates() == [4, 5]

    def test_a_draft_replaces_an_ending(self):
        ledger = Ledger(reused=[1, 2], ending=[8, 9])
        assert (ledger.candidates(), ledger.num_reused) == ([1, 2, 8, 9], 4)
        assert (ledger.reused, ledger.held) == ((1, 2), 2)  # the draft does not know the ending
        assert ledger.offer(2, 0, [3, 4]) is Offer.FRESH
        assert (ledger.candidates(), ledger.num_reused, ledger.held) == ([1, 2, 3, 4], 2, 4)

    def test_a_draft_may_confirm_the_beginning_of_an_ending(self):
        ledger = Ledger(reused=[1], ending=[7, 8, 9])
        assert ledger.offer(1, 0, [7, 8]) is Offer.FRESH
        assert (ledger.candidates(), ledger.num_reused, ledger.held) == ([1, 7, 8, 9], 4, 3)
        assert ledger.offer(3, 0, [5]) is Offer.FRESH
        assert (ledger.candidates(), ledger.num_reused, ledger.held) == ([1, 7, 8, 5], 3, 4)

    def test_an_ending_stays_one_after_a_correction(self):
        ledger = Ledger(reused=[1, 2], ending=[8, 9])
        ledger.append([5])
        assert (ledger.candidates(), ledger.reused, ledger.held) == ([2, 8, 9], (2,), 2)
        ledger.append([2, 7])
        assert (ledger.candidates(), ledger.reused, ledger.held) == ([9], (), 3)
        assert ledger.offer(3, 3, [4]) is Offer.FRESH
        assert (ledger.candidates(), ledger.num_reused) == ([4], 0)

    @given(st.data())
    def test_they_are_always_the_first_candidates(self, data):
        token = st.integers(0, 3)
        tokens = st.lists(token, max_size=8)
        ledger = Ledger(reused=data.draw(tokens), ending=data.draw(tokens), max_pending=8)
        for _ in range(data.draw(st.integers(0, 12))):
            if data.draw(st.booleans()):
                ledger.append(data.draw(st.lists(token, max_size=4)))
            else:
                base, known = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
                own, reused = list(ledger.reused), ledger.candidates(ledger.num_reused)
                ledger.offer(base, known, data.draw(st.lists(token, max_size=4)))
                assert ledger.candidates(len(own)) == own
                assert ledger.candidates(ledger.num_reused) == reused[: ledger.num_reused]
            end = len(ledger.committed)
            assert len(ledger.reused) <= ledger.num_reused <= ledger.num_pending <= 8
            assert end + len(ledger.reused) <= ledger.held <= end + ledger.num_pending
