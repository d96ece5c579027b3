"""A session leaves a slow target for one that is clearly faster, and does not go back and forth."""

from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.types import NS_PER_S, Timing
from specwhisper_draft_server.link.targets import FIRST_S, MAX_STAY_S, Pace

SEEDS = st.integers(0, 2**32)
HOUR_S = 3_600.0


@dataclass
class Session:
    """A session on one of two targets, in simulated time.

    Parameters
    ----------
    answers_s : the two targets' answers.
    noise : factors between which answers, and what targets say of them, vary.
    """

    answers_s: list[float]
    seed: int
    noise: tuple[float, float] = (0.75, 1.33)

    def run(self) -> list[float]:
        """Return when it moved within an hour."""
        draw = Random(self.seed)
        pace, at, now_s, moves_s = Pace(draw.random), 0, 0.0, []
        pace.begin(now_s)
        while now_s < HOUR_S:
            answer_s = self.answers_s[at] * draw.uniform(*self.noise)
            now_s += max(answer_s, 1.0)
            pace.observe(Timing(forward_ns=1 + int(answer_s * NS_PER_S)))
            offered_s = self.answers_s[1 - at] * draw.uniform(*self.noise)
            if pace.asks_others(now_s) and offered_s <= pace.worth_a_move_s:
                at = 1 - at
                moves_s.append(now_s)
                pace.begin(now_s)
        return moves_s


@given(st.floats(0.05, 5.0), SEEDS)
def test_equal_targets_are_never_left(answer_s, seed):
    assert Session([answer_s, answer_s], seed).run() == []


@given(st.floats(0.5, 5.0), st.floats(0.01, 1.0), SEEDS)
def test_a_slow_target_is_left_once_at_most_and_surely_for_a_much_faster_one(slow_s, part, seed):
    moves_s = Session([slow_s, slow_s * part], seed).run()
    assert len(moves_s) <= 1
    if part <= 0.05:
        assert len(moves_s) == 1


@given(SEEDS)
def test_no_session_goes_back_and_forth_whatever_targets_say(seed):
    moves_s = Session([1.0, 1.0], seed, noise=(0.0, 10.0)).run()
    stays_s = [later - earlier for earlier, later in pairwise([0.0, *moves_s])]
    assert all(stay_s >= min(FIRST_S * 2**n, MAX_STAY_S) for n, stay_s in enumerate(stays_s))


def settled(*answers_s: float, encode_s: float = 0.0) -> Pace:
    pace = Pace()
    pace.begin(0.0)
    for answer_s in answers_s:
        pace.observe(Timing(forward_ns=int(answer_s * NS_PER_S), encode_ns=int(encode_s * NS_PER_S)))
    return pace


def test_a_single_slow_answer_is_no_reason():
    assert not settled(0.01, 0.01, 0.01, 0.01, 60.0).asks_others(HOUR_S)
    assert not settled(2.0, 2.0, 2.0).asks_others(HOUR_S)
    assert settled(2.0, 2.0, 2.0, 2.0).asks_others(HOUR_S)
    assert settled(*[0.05, 2.0] * 4).asks_others(HOUR_S), "every other one is slow: so is the session"


def test_a_move_must_save_more_than_it_costs():
    assert settled(*[2.0] * 8).worth_a_move_s == pytest.approx(1.9 / 3)
    other_s = settled(*[2.0] * 8, encode_s=60.0).worth_a_move_s
    cost_s = 60.0 * other_s / 2.0  # the other one encodes as much faster as it answers
    assert 10 * (2.0 - other_s) == pytest.approx(cost_s)


@pytest.mark.parametrize("encode_s", [0.0, 0.03, 0.3, 1.5])
def test_a_target_that_encodes_as_slowly_as_it_answers_is_left(encode_s):
    pace = settled(*[20 * 0.03] * 8, encode_s=20 * encode_s)
    assert pace.asks_others(HOUR_S)
    assert pace.worth_a_move_s > 0.03
