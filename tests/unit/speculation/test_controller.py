"""The controller chooses how far a draft runs ahead."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specwhisper.speculation.controller import (
    CHOOSE_EVERY,
    FIRST_CONFIDENCE,
    PROBE_TOKENS,
    Choice,
    Controller,
    Estimates,
    choose,
)
from specwhisper.speculation.survival import MAX_DISTANCE, Survival

from specwhisper.speculation.draft_length import MAX_ADAPTIVE_GAMMA, DraftLength
from specwhisper.speculation.theory import sync_s
from specwhisper.types import Mode
from tests.survival import geometric

MS = 1_000_000
PIPELINING = [Mode.PIPELINED, Mode.FULL]
LOCK_STEP = [Mode.SYNC, Mode.ONE_PROCESS]


def estimates(
    acceptance: float = 0.8, *, draft=4 * MS, forward=20 * MS, token=0, round_trip=10 * MS, jitter=0
):
    survival = tuple(geometric(acceptance, MAX_DISTANCE + 1))
    return Estimates(draft, forward, token, round_trip, jitter, survival)


def adaptive(mode: Mode) -> DraftLength:
    return DraftLength(mode, is_adaptive=True)


any_estimates = st.builds(
    estimates,
    st.floats(0, 1),
    draft=st.floats(0, 1e10),
    forward=st.floats(0, 1e10),
    token=st.floats(0, 1e9),
    round_trip=st.floats(0, 1e11),
    jitter=st.floats(0, 1e11),
)
any_length = st.builds(
    DraftLength,
    st.sampled_from([*PIPELINING, *LOCK_STEP, Mode.TARGET_ONLY]),
    st.integers(1, 64),
    st.none() | st.integers(1, 8),
    st.booleans(),
)


@given(any_length, st.none() | any_estimates)
def test_choices_are_within_their_limits(length, known):
    choice = choose(length, known)
    assert 1 <= choice.gamma <= length.longest
    assert 0 <= choice.min_confidence < 1
    assert 0 <= choice.max_ahead <= max(MAX_DISTANCE + MAX_ADAPTIVE_GAMMA, 64 * 8)
    assert choice.max_ahead >= choice.gamma or choice.reason.startswith("paused")
    assert choice.reason


@given(any_estimates, st.integers(1, 64), st.integers(1, 8))
def test_a_requested_draft_length_is_used(known, gamma, depth):
    for mode in PIPELINING:
        choice = choose(DraftLength(mode, gamma, depth), known)
        assert (choice.gamma, choice.max_ahead) == (gamma, gamma * depth)
    for mode in LOCK_STEP:
        assert choose(DraftLength(mode, gamma, depth), known).gamma == gamma


@pytest.mark.parametrize("mode", LOCK_STEP)
@pytest.mark.parametrize("round_trip", [0, 10 * MS, 100 * MS])
@pytest.mark.parametrize("acceptance", [0.3, 0.8, 0.95])
def test_lock_step_uses_the_block_with_the_least_time_per_token(mode, round_trip, acceptance):
    known = estimates(acceptance, round_trip=round_trip)
    found = choose(DraftLength(mode, is_adaptive=True, min_confidence=0), known).gamma
    times = {g: sync_s(known.costs, known.survival, g) for g in range(1, MAX_ADAPTIVE_GAMMA + 1)}
    assert times[found] == min(times.values())


@pytest.mark.parametrize("mode", LOCK_STEP)
def test_a_calibrated_draft_gets_longer_blocks(mode):
    known = estimates(0.8, token=MS)
    fixed = choose(DraftLength(mode, is_adaptive=True, min_confidence=0), known)
    free = choose(adaptive(mode), known)
    assert fixed.min_confidence == 0 < free.min_confidence < 0.5
    assert free.gamma > fixed.gamma
    assert choose(adaptive(mode), replace(known, calibration=0.5)).gamma == fixed.gamma
    far = choose(adaptive(mode), replace(known, round_trip_ns=100 * MS))
    assert far.min_confidence < free.min_confidence  # a drafted token saves more time


@pytest.mark.parametrize("mode", PIPELINING)
def test_min_confidence_rises_with_the_time_of_a_token(mode):
    cheap, costly = (
        choose(adaptive(mode), estimates(0.8, token=token)).min_confidence for token in (0, 2 * MS)
    )
    assert 0 < cheap < costly < 0.3
    assert choose(DraftLength(mode, min_confidence=0.4), estimates()).min_confidence == 0.4
    assert choose(DraftLength(mode), estimates()).min_confidence == 0


def test_blocks_are_as_short_as_messages_allow():
    gammas = [choose(adaptive(Mode.FULL), estimates(draft=draft)).gamma for draft in (2 * MS, MS, MS / 10)]
    assert gammas == [1, 2, MAX_ADAPTIVE_GAMMA]


def test_blocks_are_longer_if_many_sessions_share_a_target():
    """Their messages must not delay its forward passes."""
    gammas = [
        choose(adaptive(Mode.FULL), replace(estimates(draft=2 * MS), num_sharing=sharing)).gamma
        for sharing in (1, 2, 4, 8, 1000)
    ]
    assert gammas == [1, 1, 2, 4, MAX_ADAPTIVE_GAMMA]


@pytest.mark.parametrize("mode", PIPELINING)
def test_a_draft_runs_ahead_by_the_tokens_of_a_round_trip(mode):
    ahead = [
        choose(adaptive(mode), estimates(0.99, round_trip=round_trip)).max_ahead
        for round_trip in (0, 20 * MS, 60 * MS)
    ]
    assert ahead == [10 + 1, 15 + 1, 25 + 1]
    assert choose(adaptive(mode), estimates(0.99, jitter=20 * MS)).max_ahead == 23 + 1


def test_tokens_that_are_unlikely_to_be_accepted_are_not_drafted():
    assert choose(adaptive(Mode.PIPELINED), estimates(0.5, round_trip=1000 * MS)).max_ahead < 8


def test_a_draft_without_gain_pauses():
    slow = estimates(0.5, round_trip=1000 * MS)
    assert choose(adaptive(Mode.FULL), slow).max_ahead == 0
    assert choose(DraftLength(Mode.FULL, 4), slow).max_ahead > 0  # as requested
    assert choose(adaptive(Mode.PIPELINED), slow).max_ahead > 0  # its target needs candidates
    assert choose(adaptive(Mode.FULL), replace(slow, round_trip_ns=MS)).max_ahead > 0


def observe(controller: Controller, *, num_right: int, blocks: int = 1, size: int = 8) -> None:
    for _ in range(blocks):
        controller.observe_step(4 * MS)
        controller.observe_answer(100 * MS)
        controller.observe_forward(size + 1, 20 * MS)
        num_judged = min(size, num_right + 1)
        controller.observe_tokens(
            range(num_judged), [1.0] * num_judged, num_right=num_right, num_committed=num_right + 1
        )


def test_an_adaptive_session_begins_with_the_default_length_and_adapts():
    controller = Controller(adaptive(Mode.SYNC))
    assert controller.choice == Choice(5, 5, "nothing is measured yet", FIRST_CONFIDENCE)
    observe(controller, num_right=8, blocks=40)
    longest = controller.choice.gamma
    observe(controller, num_right=1, blocks=80)
    assert controller.choice.gamma < longest
    assert controller.estimates is not None and controller.estimates.draft_ns == 4 * MS


def test_a_paused_draft_probes_and_resumes():
    controller = Controller(adaptive(Mode.FULL))
    while controller.choice.max_ahead:
        observe(controller, num_right=0)
    for _ in range(PROBE_TOKENS):
        assert controller.choice.max_ahead == 0
        controller.observe_tokens([], [], num_right=0, num_committed=1)
    assert 0 < controller.choice.max_ahead == controller.choice.gamma
    observe(controller, num_right=0, blocks=CHOOSE_EVERY)
    assert controller.choice.max_ahead == 0  # no gain yet
    for _ in range(60):
        if not controller.choice.max_ahead:
            controller.observe_tokens([], [], num_right=0, num_committed=PROBE_TOKENS)
        observe(controller, num_right=40, size=40)
    assert controller.choice.max_ahead > 8


def test_survival_depends_on_the_distance():
    survival = Survival()
    for _ in range(300):
        survival.observe([0, 1, 2], num_right=2)
    chances = survival.chances
    assert chances[0] == 1
    assert chances[1] == pytest.approx(1, abs=0.03)
    assert chances[2] == pytest.approx(1, abs=0.06)
    assert chances[3] < 0.05


@given(st.lists(st.tuples(st.lists(st.integers(0, 200), max_size=8), st.integers(0, 8)), min_size=1))
def test_survival_never_rises_with_the_distance(events):
    survival = Survival()
    for distances, num_right in events:
        survival.observe(distances, num_right=num_right)
    if survival.is_known:
        chances = survival.chances
        assert chances[0] == 1
        assert all(0 <= later <= earlier for earlier, later in pairwise(chances))
