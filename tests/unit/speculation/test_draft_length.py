"""Requested draft lengths are checked."""

from __future__ import annotations

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.speculation.draft_length import MAX_ADAPTIVE_GAMMA, MAX_GAMMA, DraftLength
from specwhisper.types import Mode


@pytest.mark.parametrize("gamma", [0, -1, MAX_GAMMA + 1])
def test_gamma_outside_its_limits_is_refused(gamma):
    with pytest.raises(InvalidRequest, match=f"gamma is {gamma}: it must be between 1 and {MAX_GAMMA}"):
        DraftLength(Mode.FULL, gamma=gamma)


def test_a_depth_of_0_is_refused():
    with pytest.raises(InvalidRequest, match="depth is 0: it must be at least 1"):
        DraftLength(Mode.FULL, depth=0)


@pytest.mark.parametrize("value", [2.5, "3"])
@pytest.mark.parametrize("name", ["gamma", "depth"])
def test_gamma_and_depth_must_be_whole_numbers(name, value):
    with pytest.raises(InvalidRequest, match=f"{name} is {value!r}: it must be a whole number"):
        DraftLength(Mode.FULL, **{name: value})


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_a_confidence_is_a_probability_below_1(value):
    with pytest.raises(InvalidRequest, match="min_confidence is"):
        DraftLength(Mode.FULL, min_confidence=value)


def test_the_limits_themselves_are_allowed():
    assert DraftLength(Mode.FULL, gamma=MAX_GAMMA, depth=1).longest == MAX_GAMMA
    assert DraftLength(Mode.FULL, gamma=1, depth=1).longest == 1
    assert DraftLength(Mode.FULL, gamma=1, is_adaptive=True).longest == MAX_ADAPTIVE_GAMMA


def test_lock_step_has_one_block_in_flight():
    assert DraftLength(Mode.SYNC, depth=9).first_depth == 1
    assert DraftLength(Mode.FULL, depth=9).first_depth == 9
    assert DraftLength(Mode.FULL).first_depth > 1
