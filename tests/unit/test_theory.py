"""The closed forms of latency."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.theory import (
    Costs,
    best_gamma,
    full_s,
    geometric,
    pipelined_s,
    sync_s,
    target_only_s,
    tokens_per_block,
)

TOY = Costs(draft_s=0.004, pass_s=0.020)  # the table of published formulas
costs = st.builds(
    Costs,
    draft_s=st.floats(1e-4, 0.05),
    pass_s=st.floats(1e-3, 0.1),
    pass_token_s=st.floats(0, 1e-3),
    round_trip_s=st.floats(0, 1),
)
rates = st.floats(0.05, 0.95)


def at(round_trip_s: float) -> Costs:
    return Costs(TOY.draft_s, TOY.pass_s, round_trip_s=round_trip_s)


@pytest.mark.parametrize(
    ("acceptance", "round_trip_s", "best", "sync_ms", "self_decoding_ms", "one_process_ms"),
    [(0.85, 0.010, 6, 11.9, 8.2, 9.6), (0.85, 0.100, 12, 28.7, 15.3, 9.6), (0.95, 0.050, 20, 11.4, 7.2, 7.0)],
)
def test_published_figures(acceptance, round_trip_s, best, sync_ms, self_decoding_ms, one_process_ms):
    survival = geometric(acceptance, 2000)
    gamma = best_gamma(at(round_trip_s), survival, 64)
    assert gamma == best
    assert 1e3 * sync_s(at(round_trip_s), survival, gamma) == pytest.approx(sync_ms, abs=0.06)
    # Published with a run's last token drafted too; that is the target's own, though.
    last_ms = 1e3 * (1 - acceptance) * TOY.draft_s
    bound_ms = 1e3 * full_s(at(round_trip_s), survival)
    assert self_decoding_ms - last_ms - 0.06 < bound_ms < self_decoding_ms
    alone = best_gamma(TOY, survival, 64)
    assert 1e3 * sync_s(TOY, survival, alone) == pytest.approx(one_process_ms, abs=0.06)


def test_a_pipeline_hides_the_round_trip_of_accepted_tokens():
    survival = geometric(0.85, 2000)
    assert pipelined_s(at(0.100), [1.0] * 10_000, 5) == pytest.approx(0.004, rel=0.01)
    assert pipelined_s(at(0.100), survival, 5) < sync_s(at(0.100), survival, 12)
    corrections_s = (1 - 0.85) * 0.100
    longer_s = pipelined_s(at(0.200), survival, 5) - pipelined_s(at(0.100), survival, 5)
    assert longer_s == pytest.approx(corrections_s, rel=0.01)  # only those of corrections are paid


@given(rates, st.integers(1, 64))
def test_a_block_yields_what_leviathan_found(acceptance, gamma):
    expected = (1 - acceptance ** (gamma + 1)) / (1 - acceptance)
    assert tokens_per_block(geometric(acceptance), gamma) == pytest.approx(expected)


@given(costs, rates)
def test_decoding_by_itself_never_loses_to_the_target_alone_or_to_waiting(costs, acceptance):
    survival = geometric(acceptance, 600)
    bound = full_s(costs, survival)
    assert bound <= target_only_s(costs) * (1 + 1e-9)
    assert bound <= min(sync_s(costs, survival, gamma) for gamma in range(1, 65)) * (1 + 1e-9)


@given(costs, rates, st.integers(1, 16))
def test_a_longer_round_trip_never_helps(costs, acceptance, gamma):
    survival = geometric(acceptance)
    slower = Costs(costs.draft_s, costs.pass_s, costs.pass_token_s, costs.round_trip_s + 0.1)
    assert sync_s(slower, survival, gamma) > sync_s(costs, survival, gamma)
    assert pipelined_s(slower, survival, gamma) > pipelined_s(costs, survival, gamma)
    assert full_s(slower, survival) >= full_s(costs, survival)
    assert best_gamma(slower, survival, 64) >= best_gamma(costs, survival, 64)
