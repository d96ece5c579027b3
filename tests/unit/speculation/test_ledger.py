"""The target's ledger, for blocks that are late, repeated, reordered or wrong."""

from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.hints import FIRST_RATE, GivenHint
from specwhisper.speculation.ledger import CandidateSource, DraftRates, Ledger, SharedHints


def script(tokens: Iterable[int], rate: float = FIRST_RATE) -> GivenHint:
    """Return a text from outside that is right as often."""
    hint = GivenHint(str, rate=rate)
    hint.extend(tokens)
    return hint


# Committed tokens; what happens then, which is a commit's tokens, or a block: base, known_committed, tokens,
# and whether it is taken; the candidates after that.
EVENTS = {
    "candidates follow the committed tokens": ([1, 2], [(2, 2, [3, 4], True)], [3, 4]),
    "blocks follow each other": ([], [(0, 0, [1, 2], True), (2, 0, [3], True)], [1, 2, 3]),
    "a gap is dropped": ([1], [(2, 1, [3], False)], []),
    "overlap that agrees is cut off": ([1, 2], [(0, 0, [1, 2, 3], True)], [3]),
    "a block of committed tokens is late": ([1, 2, 3], [(0, 0, [1, 2], False), (3, 3, [], False)], []),
    "overlap that disagrees is dropped with what was drafted on it": (
        [1, 2],
        [(1, 1, [7, 8], False), (3, 1, [9], False), (2, 1, [8], False)],
        [],
    ),
    "a block that was drafted after the correction is taken": (
        [1, 2],
        [(1, 1, [7, 8], False), (2, 2, [3], True)],
        [3],
    ),
    "blocks drafted before a correction are stale": (
        [],
        [(0, 0, [1, 2, 3], True), [1, 5], (2, 0, [4], False), (2, 1, [4], False), (2, 2, [6], True)],
        [6],
    ),
    "an old block that contains the correction is taken": (
        [],
        [(0, 0, [1, 2], True), [1, 5], (0, 0, [1, 5, 6], True)],
        [6],
    ),
    "predicted commits void nothing": (
        [],
        [(0, 0, [1, 2, 3, 4], True), [1, 2], (4, 0, [5], True)],
        [3, 4, 5],
    ),
    "a repeated block changes nothing": (
        [],
        [(0, 0, [1, 2], True), (2, 0, [3], True), (0, 0, [1, 2], True)],
        [1, 2, 3],
    ),
    "a draft may replace pending candidates": ([], [(0, 0, [1, 2, 3], True), (1, 0, [7], True)], [1, 7]),
}


class TestLedger:
    @pytest.mark.parametrize("case", EVENTS)
    def test_blocks_are_taken_or_dropped(self, case):
        committed, events, expected = EVENTS[case]
        assert tokens(after(Ledger(committed), events)) == expected

    def test_the_number_of_pending_candidates_is_limited(self):
        ledger = Ledger(max_pending=3)
        assert ledger.add_candidates(0, 0, [1, 2, 3, 4, 5])
        assert (tokens(ledger), ledger.held) == ([1, 2, 3], 3)
        assert not ledger.add_candidates(4, 0, [5])


# The ledger, events as above, and the candidates after them with the initials of their sources: the target's
# own opening text, the draft's, or what it had sent before a correction; how far tokens are held.
CORRECTED = [(0, 0, [1, 2, 3, 4], True), [1, 9]]
HINTED = {
    "an opening text": ({"opening": [1, 2]}, [], [1, 2], "oo", 2),
    "it comes before candidates": ({"opening": [1, 2]}, [(2, 0, [3], True)], [1, 2, 3], "ood", 3),
    "a block that contradicts it is void": ({"opening": [1, 2]}, [(1, 0, [7, 8], False)], [1, 2], "oo", 2),
    "a block that contains it": ({"opening": [1, 2]}, [(0, 0, [1, 2, 3], True)], [1, 2, 3], "ood", 3),
    "it continues after a correction": ({"opening": [1, 2, 3, 4]}, [[1, 9]], [3, 4], "oo", 2),
    "a correction may skip some of it": ({"opening": [1, 2, 3, 4, 5]}, [[1, 4]], [5], "o", 2),
    "sent before": ({"keeps_sent": True}, CORRECTED, [3, 4], "ss", 2),
    "it was on its way": ({"keeps_sent": True}, [*CORRECTED, (4, 0, [5], False)], [3, 4, 5], "sss", 2),
    "a block between is lost": ({"keeps_sent": True}, [*CORRECTED, (5, 0, [8], False)], [3, 4], "ss", 2),
    "a late block": ({"keeps_sent": True}, [[1, 2], (1, 1, [7, 3, 4], False)], [3, 4], "ss", 2),
    "late blocks follow each other": (
        {"keeps_sent": True},
        [[1, 2], (1, 1, [7, 3, 4], False), (4, 1, [5], False)],
        *([3, 4, 5], "sss", 2),
    ),
    "a fresh block replaces it": ({"keeps_sent": True}, [*CORRECTED, (2, 2, [3, 8], True)], [3, 8], "dd", 4),
    "for good": ({"keeps_sent": True}, [*CORRECTED, (2, 2, [3, 8], True), [3, 8]], [], "", 4),
    "a fresh block agrees with it": ({"keeps_sent": True}, [*CORRECTED, (2, 2, [3], True)], [3, 4], "ds", 3),
    "other modes drop it": ({}, CORRECTED, [], "", 2),
}


class TestHints:
    """Candidates that no fresh block has sent."""

    @pytest.mark.parametrize("case", HINTED)
    def test_a_text_is_reused_where_it_continues_the_committed_one(self, case):
        given, events, expected, initials, held = HINTED[case]
        shared = SharedHints(keeps_sent=given.get("keeps_sent", False))
        ledger = after(Ledger(opening=given.get("opening", []), shared=shared), events)
        assert (tokens(ledger), ledger.held) == (expected, held)
        assert "".join(source.value[0] for source in sources(ledger)) == initials

    def test_an_opening_text_is_known_until_a_correction(self):
        ledger = Ledger(opening=[1, 2, 3, 4])
        assert ledger.opening == (1, 2, 3, 4)
        ledger.extend_committed([1, 9])
        assert (ledger.opening, ledger.correction) == ((), 1)

    def test_a_text_from_outside_follows(self):
        ledger = Ledger([1], shared=SharedHints(script=script([1, 2, 3, 4])))
        assert (tokens(ledger), ledger.held, set(sources(ledger))) == ([2, 3, 4], 1, {CandidateSource.GIVEN})
        ledger.add_candidates(1, 1, [2])
        assert sources(ledger) == [CandidateSource.DRAFT, CandidateSource.GIVEN, CandidateSource.GIVEN]

    def test_where_both_differ_the_source_that_was_right_more_often_goes_first(self):
        ledger = Ledger(shared=SharedHints(script=script(range(10), rate=0.9)))
        ledger.add_candidates(0, 0, [7])
        assert tokens(ledger)[0] == 0
        ledger = Ledger(shared=SharedHints(script=script(range(10), rate=0.9), rates=DraftRates(0.95)))
        ledger.add_candidates(0, 0, [7])
        assert tokens(ledger) == [7]

    def test_a_hint_that_is_always_wrong_is_not_tried(self):
        hint, num_offered = script(range(1000)), 0
        ledger = Ledger(shared=SharedHints(script=hint))
        for position in range(500):
            candidates = ledger.next_candidates()
            num_offered += len(candidates)
            ledger.extend_committed([1000], candidates)
            hint.seek(position)
        assert num_offered < 50

    def test_a_hint_adds_fewer_candidates_where_each_takes_longer(self):
        text = list(range(100))
        counts = []
        for share in (0.0, 0.05, 0.2, 1.0):
            hints = SharedHints(script=script(text, rate=0.9), token_share=partial(float, share))
            counts.append(len(Ledger(shared=hints).next_candidates()))
        assert counts == sorted(counts, reverse=True)
        assert counts[0] > 20 and counts[-1] == 1  # as it can pay
        seldom_right = SharedHints(script=script(text, rate=0.4), token_share=partial(float, 1.0))
        assert Ledger(shared=seldom_right).next_candidates() == []

    @given(st.data())
    def test_candidates_are_of_some_source_and_never_change_what_is_committed(self, data):
        token = st.integers(0, 3)
        text = st.lists(token, max_size=8)
        opening, given, keeps_sent = data.draw(text), data.draw(text), data.draw(st.booleans())
        hints = SharedHints(script=script(given), keeps_sent=keeps_sent)
        ledger = Ledger(opening=opening, shared=hints, max_pending=8)
        committed = []
        for _ in range(data.draw(st.integers(0, 12))):
            if data.draw(st.booleans()):
                new = data.draw(st.lists(token, max_size=4))
                ledger.extend_committed(new, ledger.next_candidates(data.draw(st.integers(0, 8))))
                committed += new
            else:
                base, known = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
                ledger.add_candidates(base, known, data.draw(st.lists(token, max_size=4)))
            assert ledger.committed == committed
            assert len(committed) <= ledger.held <= len(committed) + 8
            assert ledger.has_candidates == bool(ledger.next_candidates())
            if not (opening or given or keeps_sent):
                assert ledger.held == len(committed) + len(tokens(ledger))
            assert len(ledger.next_candidates(2)) <= len(ledger.next_candidates())


def after(ledger: Ledger, events: Iterable[list[int] | tuple]) -> Ledger:
    for event in events:
        if isinstance(event, list):
            ledger.extend_committed(event)
        else:
            assert ledger.add_candidates(*event[:3]) is event[3]
    return ledger


def tokens(ledger: Ledger) -> list[int]:
    """Return all candidates."""
    return [token for token, _ in ledger.next_candidates()]


def sources(ledger: Ledger) -> list[CandidateSource]:
    """Return the sources of all candidates."""
    return [source for _, source in ledger.next_candidates()]
