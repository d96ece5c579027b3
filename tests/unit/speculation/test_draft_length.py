"""Requested draft lengths are checked, and without one a session chooses the size of its blocks."""

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.speculation.draft_length import (
    FIRST_GAMMA,
    MAX_CHOSEN_GAMMA,
    MAX_GAMMA,
    MIN_CONFIDENCE,
    BlockSize,
    DraftLength,
)
from specwhisper.types import Mode

MS = 1_000_000
LOCK_STEP, OVERLAPPING = (Mode.SYNC, Mode.ONE_PROCESS), (Mode.PIPELINED, Mode.FULL)


@pytest.mark.parametrize(
    ("gamma", "message"),
    [
        (0, f"gamma is 0: it must be between 1 and {MAX_GAMMA}"),
        (MAX_GAMMA + 1, f"it must be between 1 and {MAX_GAMMA}"),
        (2.5, "gamma is 2.5: it must be a whole number"),
        ("3", "gamma is '3': it must be a whole number"),
    ],
)
def test_gamma_is_a_whole_number_within_limits(gamma, message):
    with pytest.raises(InvalidRequest, match=message):
        DraftLength(Mode.FULL, gamma)
    assert [DraftLength(Mode.FULL, limit).gamma for limit in (1, MAX_GAMMA)] == [1, MAX_GAMMA]


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.drafts])
def test_confidence_ends_a_block_in_lock_step_without_a_gamma(mode):
    assert DraftLength(mode).min_confidence == (MIN_CONFIDENCE if mode in LOCK_STEP else 0)
    assert DraftLength(mode, 16).min_confidence == 0


def size(mode: Mode, gamma: int | None = None, *, step_ms: float = 0.0, num_sessions: int = 1) -> int:
    blocks = BlockSize(DraftLength(mode, gamma))
    for _ in range(50 if step_ms else 0):
        blocks.observe_step(round(step_ms * MS))
        blocks.observe_forward(num_sessions)
    return blocks.gamma


@pytest.mark.parametrize("mode", [*LOCK_STEP, *OVERLAPPING])
def test_a_requested_gamma_stays(mode):
    assert size(mode, 7) == size(mode, 7, step_ms=0.1, num_sessions=64) == 7


@pytest.mark.parametrize("mode", LOCK_STEP)
def test_in_lock_step_a_block_has_the_most_tokens_of_a_forward_pass(mode):
    assert size(mode) == size(mode, step_ms=5) == MAX_CHOSEN_GAMMA


@pytest.mark.parametrize("mode", OVERLAPPING)
def test_otherwise_a_block_is_as_short_as_messages_allow(mode):
    assert size(mode) == FIRST_GAMMA
    assert [size(mode, step_ms=ms) for ms in (0.001, 0.5, 1.0, 2.0, 10.0)] == [MAX_CHOSEN_GAMMA, 4, 2, 1, 1]
    shared = [size(mode, step_ms=2.0, num_sessions=num) for num in (1, 2, 4, 32)]
    assert shared == [1, 1, 2, MAX_CHOSEN_GAMMA], "a target of many sessions has more messages"
