"""The service's engines in simulated time."""

from dataclasses import replace
from random import Random

import pytest

from experiments.common.models.scripted import END
from experiments.common.models.scripted import VOCABULARY as SHORT
from experiments.common.replay.trace import Decoding
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session, simulate_together
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode
from tests.nightly import mostly_nightly

VOCABULARY = replace(SHORT, max_length=4000)
STEP_S = 0.05
COSTS = Costs(target=Cost(STEP_S), draft=Cost(STEP_S / 5))
WRONG = 3


def decoding(*agrees: bool) -> Decoding:
    """Return a window in which the draft is right at the given positions, and wrong once it diverged."""
    tokens = (*[1 + i % 2 for i in range(len(agrees) - 1)], END)
    return Decoding(
        recording="",
        start_frame=0,
        audio="",
        prompt=(),
        temperature=0.0,
        tokens=tokens,
        log_probs=(0.0,) * len(tokens),
        margins=(1.0,) * len(tokens),
        divergences={i: (WRONG,) * 32 for i, agreed in enumerate(agrees) if not agreed},
    )


def time_per_step(decodings, mode, *, round_trip=0.0, gamma=1, costs=COSTS):
    session = simulate_session(
        decodings, VOCABULARY, costs, DraftLength(mode, gamma), round_trip_s=round_trip * STEP_S
    )
    return session.time_per_token_s / STEP_S


@pytest.mark.parametrize("mode", [Mode.SYNC, Mode.PIPELINED, Mode.FULL])
@pytest.mark.parametrize("round_trip", [0.5, 5])
def test_a_draft_measures_true_times(mode, round_trip):
    costs = replace(COSTS, message_s=0.002)
    session = simulate_session(
        [decoding(*[True] * 200)],
        VOCABULARY,
        costs,
        DraftLength(mode, None),
        round_trip_s=round_trip * STEP_S,
    )
    statistics = session.statistics
    on_the_way_s = statistics.network_ns / 1e9 / statistics.num_answers
    waits_s = 0.0 if mode is Mode.SYNC else COSTS.draft.pass_s  # at most, for the end of a draft step
    expected_s = round_trip * STEP_S + 0.004
    assert 0.98 * expected_s <= on_the_way_s <= 1.02 * expected_s + waits_s
    if mode is Mode.SYNC:
        assert statistics.num_answers == statistics.num_blocks
    assert statistics.num_draft_steps >= statistics.num_drafted
    step_s = statistics.draft_ns / 1e9 / statistics.num_draft_steps
    assert step_s == pytest.approx(COSTS.draft.pass_s, rel=1e-3)


@pytest.mark.parametrize("gamma", [1, 3, 4])
@pytest.mark.parametrize("round_trip", [0, 2.5])
def test_a_block_of_sync_takes_its_draft_steps_a_round_trip_and_a_forward_pass(gamma, round_trip):
    """Without a wrong candidate a block yields gamma + 1 tokens; the window ends with a whole block."""
    simulated = time_per_step(
        [decoding(*[True] * 8 * (gamma + 1))], Mode.SYNC, round_trip=round_trip, gamma=gamma
    )
    assert simulated == pytest.approx((gamma / 5 + round_trip + 1) / (gamma + 1), rel=0.02)


@pytest.mark.parametrize(
    ("mode", "gamma", "round_trip", "accepted", "expected"),
    [
        (Mode.PIPELINED, 8, 2.5, 0.9, 0.626),
        (Mode.FULL, 1, 0, 0.9, 0.336),
        (Mode.FULL, 1, 5, 0.9, 0.648),
        (Mode.FULL, 1, 1.25, 0.5, 0.903),
    ],
)
def test_modes_are_as_fast_as_they_were(mode, gamma, round_trip, accepted, expected):
    random = Random(5 if mode is Mode.PIPELINED else 7)
    decodings = [
        decoding(*(random.random() < accepted for _ in range(1500 + 500 * (mode is Mode.PIPELINED))))
    ]
    found = time_per_step(decodings, mode, round_trip=round_trip, gamma=gamma)
    assert found == pytest.approx(expected, rel=0.05)


def test_a_chain_after_a_correction_is_not_dropped_as_stale():
    """Blocks of one token on a slow link: each outdated candidate contradicts a commit by itself."""
    agrees = [i % 20 != 2 for i in range(400)]
    ones, fours = (time_per_step([decoding(*agrees)], Mode.FULL, round_trip=5, gamma=g) for g in (1, 4))
    assert ones < fours < 0.75


@pytest.mark.parametrize("round_trip", mostly_nightly([0.5, 0, 2.5, 6]))
@pytest.mark.parametrize(
    ("num_sessions", "costs"),
    mostly_nightly(
        [
            (8, Costs(target=Cost(STEP_S, 0.0001, 0.001), draft=Cost(STEP_S / 4))),
            (24, Costs(target=Cost(0.008, 0.000005, 0.00005), draft=Cost(0.0025), handling_s=0.0001)),
            (24, Costs(target=Cost(STEP_S, 0.0001, 0.001), draft=Cost(STEP_S / 4))),
        ]
    ),
)
def test_drafts_do_not_slow_down_many_sessions(num_sessions, costs, round_trip):
    """A delayed forward pass, a session left out of one, and messages all delay other sessions."""
    random = Random(5)
    windows = [decoding(*(random.random() < 0.7 for _ in range(60))) for _ in range(5)]
    target_only, full = (
        simulate_together(
            windows,
            VOCABULARY,
            costs,
            DraftLength(mode, None),
            num_sessions=num_sessions,
            per_draft_server=4,
            num_windows=4,
            round_trip_s=round_trip * costs.target.pass_s,
        )
        for mode in (Mode.TARGET_ONLY, Mode.FULL)
    )
    # Messages keep the target's interpreter busy; here nothing realigns, so that they bring little from afar.
    assert full > (0.82 if costs.handling_s and round_trip > 5 else 0.96) * target_only
    if round_trip < 1:
        assert full > 1.1 * target_only
