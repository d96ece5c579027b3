"""Estimates of when a draft's next candidates arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.arrivals import Arrivals, Smoothed

MS = 1_000_000


def steadily(ms: float):
    """Return a bound that is hardly after the mean."""
    return pytest.approx(ms * MS, rel=1e-3)


def test_a_draft_that_sent_nothing_has_no_estimate():
    arrivals = Arrivals()
    assert arrivals.bound_ns(0) is None
    arrivals.restart(3, 5 * MS)
    assert arrivals.bound_ns(3) is None


def test_a_chain_continues_step_by_step():
    arrivals = Arrivals()
    for number in range(40):
        arrivals.observe(number + 1, 1, 10 * MS * number)
    assert arrivals.bound_ns(40) == steadily(400)
    assert arrivals.bound_ns(42) == steadily(420)


def test_a_chain_begins_a_turnaround_after_the_correction():
    arrivals = Arrivals()
    arrivals.observe(1, 1, 0)
    for start in range(100, 100_000, 100):
        arrivals.restart(1, start * MS)
        assert start == 100 or arrivals.bound_ns(1) >= (start + 30) * MS
        arrivals.observe(2, 1, (start + 30) * MS)
        arrivals.observe(3, 1, (start + 35) * MS)
        arrivals._end = 1
    arrivals.restart(1, 0)
    assert arrivals.bound_ns(1) == steadily(30)
    assert arrivals.bound_ns(4) == steadily(30 + 3 * 5), "tokens 1 to 3 have not arrived"


def test_candidates_in_blocks_arrive_in_blocks():
    arrivals = Arrivals()
    for number in range(20):
        arrivals.observe(4 * number + 4, 4, 20 * MS * number)
    for position in range(80, 84):
        assert arrivals.bound_ns(position) == steadily(400)
    assert arrivals.bound_ns(84) == steadily(420)


def test_a_new_window_has_no_estimate_before_its_first_block():
    arrivals = Arrivals()
    for number in range(40):
        arrivals.observe(number + 1, 1, 10 * MS * number)
    arrivals.open()
    arrivals.restart(0, 450 * MS)
    assert arrivals.bound_ns(0) is None
    arrivals.observe(1, 1, 500 * MS)
    assert arrivals.bound_ns(1) == steadily(510)


def test_unsteady_values_have_a_spread():
    steady, unsteady = Smoothed(), Smoothed()
    for number in range(100):
        steady.observe(10.0)
        unsteady.observe(10.0 + 5 * (-1) ** number)
    assert steady.spread < 0.01 < 3 < unsteady.spread
    assert unsteady.mean == pytest.approx(10, abs=1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("observe"), st.integers(1, 300), st.integers(1, 64)),
            st.tuples(st.just("restart"), st.integers(0, 300), st.just(0)),
            st.tuples(st.just("open"), st.just(0), st.just(0)),
        )
    ),
    st.integers(0, 300),
)
def test_a_bound_is_a_time_after_any_blocks(events, position):
    arrivals = Arrivals()
    for number, (kind, end, num_tokens) in enumerate(events):
        match kind:
            case "observe":
                arrivals.observe(end, num_tokens, number * MS)
            case "restart":
                arrivals.restart(end, number * MS)
            case _:
                arrivals.open()
        bound_ns = arrivals.bound_ns(position)
        assert bound_ns is None or bound_ns >= 0
