"""How far a draft runs ahead, by mode."""

from __future__ import annotations

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.speculation.draft_length import MAX_GAMMA, BestGamma, DraftLength
from specwhisper.speculation.ledger import Belief
from specwhisper.types import Mode

WAITING = [Mode.SYNC, Mode.ONE_PROCESS]
RUNNING_AHEAD = [Mode.PIPELINED, Mode.FULL]


def belief(*, committed: int, drafted: int = 0, credit: int = 100) -> Belief:
    made = Belief(range(committed), credit=credit)
    made.tokens += range(committed, committed + drafted)
    return made


def test_the_target_alone_needs_no_draft():
    assert DraftLength(Mode.TARGET_ONLY, gamma=5).limit(belief(committed=7)) == 7


@pytest.mark.parametrize("mode", WAITING)
def test_a_draft_that_waits_has_one_block_in_flight(mode):
    length, made = DraftLength(mode, gamma=3, depth=9), belief(committed=7, drafted=3)
    assert length.limit(made) == 10
    made.take_block(3)
    assert length.limit(made) == len(made.tokens) == 10
    made.apply(7, [7], held=10, blocks_answered=1, credit=100)
    assert length.limit(made) == 13


@pytest.mark.parametrize("mode", RUNNING_AHEAD)
def test_a_draft_that_runs_ahead_has_several(mode):
    length, made = DraftLength(mode, gamma=3, depth=4), belief(committed=7, drafted=3)
    assert length.limit(made) == 7 + 3 * 4
    made.take_block(3)
    assert length.limit(made) == 7 + 3 * 4


@pytest.mark.parametrize("mode", [*WAITING, *RUNNING_AHEAD])
def test_credit_bounds_every_mode(mode):
    assert DraftLength(mode, gamma=5).limit(belief(committed=7, credit=9)) == 9


@pytest.mark.parametrize("gamma", [0, -1, MAX_GAMMA + 1])
def test_gamma_is_checked(gamma):
    with pytest.raises(InvalidRequest, match=f"gamma is {gamma}: a block holds between 1 and {MAX_GAMMA}"):
        DraftLength(Mode.FULL, gamma=gamma)


def test_depth_is_checked():
    with pytest.raises(InvalidRequest, match="depth is 0: at least one block"):
        DraftLength(Mode.FULL, depth=0)


def test_extremes_are_allowed():
    assert DraftLength(Mode.FULL, gamma=MAX_GAMMA, depth=1).limit(belief(committed=0)) == MAX_GAMMA
    assert DraftLength(Mode.FULL, gamma=1, depth=1).limit(belief(committed=0)) == 1


def settled(*, accepted_of_8: int, draft_share: float, passes: int = 50) -> int:
    """Draft length after blocks of 8 of which so many were right; a draft step costs so much of a pass."""
    best = BestGamma(5)
    for _ in range(passes):
        best.observe(
            num_verified=8,
            num_accepted=accepted_of_8,
            num_drafted=8,
            draft_ns=int(8 * draft_share * 1_000_000),
            pass_ns=1_000_000,
        )
    return best.gamma


def test_the_best_gamma_grows_with_acceptance_and_falls_with_the_price_of_drafting():
    by_acceptance = [settled(accepted_of_8=n, draft_share=0.1) for n in (0, 2, 4, 6, 8)]
    assert by_acceptance == sorted(by_acceptance)
    assert by_acceptance[0] == 1
    assert by_acceptance[-1] == 24
    by_price = [settled(accepted_of_8=6, draft_share=share) for share in (0.01, 0.1, 0.3, 1.0)]
    assert by_price == sorted(by_price, reverse=True)
    assert len(set(by_price)) > 2


@pytest.mark.parametrize(("accepted_of_8", "draft_share"), [(2, 0.05), (4, 0.1), (6, 0.02), (7, 0.2)])
def test_the_best_gamma_is_the_best_of_the_formula(accepted_of_8, draft_share):
    """Counted from the definition: expected tokens of a block over its time, by summing what is kept."""
    judged = accepted_of_8 + (accepted_of_8 < 8)
    rate = accepted_of_8 / judged

    def speed(gamma: int) -> float:
        return sum(rate**i for i in range(gamma + 1)) / (1 + gamma * draft_share)

    assert settled(accepted_of_8=accepted_of_8, draft_share=draft_share) == max(range(1, 25), key=speed)


def test_the_best_gamma_follows_a_change():
    best = BestGamma(5)
    spent = {"num_verified": 8, "num_drafted": 8, "draft_ns": 800_000, "pass_ns": 1_000_000}
    for _ in range(40):
        best.observe(num_accepted=8, **spent)
    long = best.gamma
    for _ in range(40):
        best.observe(num_accepted=1, **spent)
    assert best.gamma < 4 < long


def test_the_best_gamma_waits_until_something_was_judged():
    best = BestGamma(5)
    best.observe(num_verified=0, num_accepted=0, num_drafted=0, draft_ns=0, pass_ns=1)
    assert best.gamma == 5
