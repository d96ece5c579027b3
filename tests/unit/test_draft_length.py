"""How far a draft runs ahead, by mode."""

from __future__ import annotations

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.speculation.draft_length import MAX_GAMMA, DraftLength
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
