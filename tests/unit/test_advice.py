"""What is advised for a link and a pair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.advice import advise
from specwhisper.speculation.controller import Estimates
from specwhisper.speculation.theory import geometric
from specwhisper.types import Mode

MS = 1_000_000


def estimates(acceptance: float, round_trip_ms: float, draft_ms: float = 4) -> Estimates:
    return Estimates(
        draft_ms * MS, 20 * MS, 0.1 * MS, round_trip_ms * MS, 0, tuple(geometric(acceptance, 65))
    )


def test_a_near_target_is_worth_a_split():
    advice = advise(estimates(0.85, 5))
    assert advice.mode is Mode.FULL
    assert "as much as on one machine" in advice.reason


def test_far_away_one_machine_would_be_better():
    advice = advise(estimates(0.85, 100))
    assert advice.mode is Mode.FULL
    assert "both models on the target's machine would save more" in advice.reason


@pytest.mark.parametrize("bad", [estimates(0.5, 1000), estimates(0.05, 100), estimates(0.3, 10, draft_ms=40)])
def test_a_draft_that_gains_nothing_is_left_out(bad):
    advice = advise(bad)
    assert advice.mode is Mode.TARGET_ONLY
    assert "gains nothing" in advice.reason


@given(st.floats(0, 0.99), st.floats(0, 1000), st.floats(0.1, 50))
def test_the_fastest_comes_first(acceptance, round_trip_ms, draft_ms):
    advice = advise(estimates(acceptance, round_trip_ms, draft_ms))
    times = [one.time_per_token_s for one in advice.expected]
    assert times == sorted(times)
    assert {one.mode for one in advice.expected} == set(Mode) - {Mode.PIPELINED}
