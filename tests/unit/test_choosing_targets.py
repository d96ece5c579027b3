"""Which of several targets takes a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper_draft_server.link.choosing import TargetOffer, choose

ADDRESSES = st.sampled_from("abcdef")


def offers(**free_slots: int) -> list[TargetOffer]:
    return [TargetOffer(address, free_slots=number) for address, number in free_slots.items()]


def weights(*args, **kwargs) -> dict[str, int]:
    """How likely each place is that may be chosen."""
    found, last = [], []

    def draw(drawn: Sequence[int]) -> int:
        last[:] = drawn
        return len(found)

    while not found or len(found) < len(last):
        found.append(choose(*args, **kwargs, draw=draw).address)
    return dict(zip(found, last, strict=True))


def test_room_makes_a_target_likely():
    assert weights(offers(a=4, b=3, c=0), {}) == {"a": 4, "b": 3, "c": 0}


def test_what_is_opening_takes_room():
    assert weights(offers(a=4, b=3), {"a": 3, "b": 5, "c": 1}) == {"a": 1, "b": 0}


def test_what_is_opening_may_have_been_counted_by_the_targets():
    assert weights(offers(a=2, b=1, c=0), {"a": 2, "b": 1}) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(("avoid", "left"), [(["a"], {"b": 1}), (["a", "b"], {"a": 9, "b": 1})])
def test_an_address_is_avoided_while_there_is_another(avoid, left):
    assert weights(offers(a=9, b=1), {}, avoid) == left


def test_chance_follows_the_weights():
    drawn = Counter(choose(offers(a=9, b=1), {}).address for _ in range(1_000))
    assert 800 < drawn["a"] < 980  # not so once in a billion times


@given(st.dictionaries(ADDRESSES, st.integers(1, 9), min_size=1), st.data())
def test_sessions_that_open_at_once_fit_wherever_there_is_room(free_slots, data):
    opening: Counter[str] = Counter()
    for _ in range(data.draw(st.integers(1, sum(free_slots.values())))):
        opening[choose(offers(**free_slots), opening).address] += 1
    assert all(opening[address] <= number for address, number in free_slots.items())
