"""Closed forms of latency equal published figures and hold their bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.latency.closed_form import (
    Costs,
    best_gamma,
    full_s,
    pipelined_s,
    sync_s,
    target_only_s,
    tokens_per_block,
)
from tests.survival import geometric

TOY = Costs(draft_s=0.004, forward_s=0.020)  # the table of published formulas
costs = st.builds(
    Costs,
    draft_s=st.floats(1e-4, 0.05),
    forward_s=st.floats(1e-3, 0.1),
    forward_token_s=st.floats(0, 1e-3),
    round_trip_s=st.floats(0, 1),
)
rates = st.floats(0.05, 0.95)


def at(round_trip_s: float) -> Costs:
    return Costs(TOY.draft_s, TOY.forward_s, round_trip_s=round_trip_s)


@pytest.mark.parametrize(
    ("acceptance", "round_trip_s", "best", "sync_ms", "self_decoding_ms", "one_process_ms"),
    [(0.85, 0.010, 6, 11.9, 8.2, 9.6), (0.85, 0.100, 12, 28.7, 15.3, 9.6), (0.95, 0.050, 20, 11.4, 7.2, 7.0)],
)
def test_published_figures(acceptance, round_trip_s, best, sync_ms, self_decoding_ms, one_process_ms):
    survival = geometric(acceptance, 2000)
    gamma = best_gamma(at(round_trip_s), survival, 64)
    assert gamma == best
    assert 1e3 * sync_s(at(round_trip_s), survival, gamma) == pytest.approx(sync_ms, abs=0.06)
    # Published as a bound without consecutive forward passes, but with a run's last token drafted.
    last_ms = 1e3 * (1 - acceptance) * TOY.draft_s
    full_ms = 1e3 * full_s(at(round_trip_s), survival)
    assert self_decoding_ms - last_ms - 0.06 < full_ms < 1.2 * self_decoding_ms
    alone = best_gamma(TOY, survival, 64)
    assert 1e3 * sync_s(TOY, survival, alone) == pytest.approx(one_process_ms, abs=0.06)


def test_pipelining_hides_the_round_trip_of_accepted_tokens():
    survival = geometric(0.85, 2000)
    assert pipelined_s(at(0.100), [1.0] * 10_000, 5) == pytest.approx(0.004, rel=0.01)
    assert pipelined_s(at(0.100), survival, 5) < sync_s(at(0.100), survival, 12)
    corrections_s = (1 - 0.85) * 0.100
    longer_s = pipelined_s(at(0.200), survival, 5) - pipelined_s(at(0.100), survival, 5)
    assert longer_s == pytest.approx(corrections_s, rel=0.01)  # only those of corrections are paid


@given(rates, st.integers(1, 64))
def test_tokens_of_a_block_equal_leviathans_formula(acceptance, gamma):
    expected = (1 - acceptance ** (gamma + 1)) / (1 - acceptance)
    assert tokens_per_block(geometric(acceptance), gamma) == pytest.approx(expected)


@given(costs, rates)
def test_full_loses_to_target_only_by_at_most_the_time_of_candidates(costs, acceptance):
    survival = geometric(acceptance, 600)
    found, alone = full_s(costs, survival), target_only_s(costs)
    assert found <= alone * (1 + 1e-9) + 16 * costs.forward_token_s
    assert full_s(replace(costs, forward_token_s=0.0), survival) <= costs.forward_s * (1 + 1e-9)


def test_full_in_consecutive_forward_passes():
    """After a correction: without candidates, with four, with one to five more."""
    runs_of_nine = [1.0] * 9
    assert full_s(TOY, runs_of_nine) == pytest.approx(3 * 0.020 / 9)
    assert full_s(at(0.040), runs_of_nine) == pytest.approx(5 * 0.020 / 9)  # 3 without, 1 with 3, the rest
    assert full_s(at(1.0), runs_of_nine) == pytest.approx(0.020)
