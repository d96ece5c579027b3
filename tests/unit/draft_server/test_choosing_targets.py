"""A session opens at a random target, more likely at one with more free slots."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper_draft_server.link.targets import TargetOffer, choose

ADDRESSES = st.sampled_from("abcdef")


def offers(**free_slots: int) -> list[TargetOffer]:
    return [TargetOffer(address, free_slots=number) for address, number in free_slots.items()]


def weights(*args, **kwargs) -> dict[str, int]:
    """Return the weight of each address that may be chosen."""
    addresses, last = [], []

    def draw(drawn: Sequence[int]) -> int:
        last[:] = drawn
        return len(addresses)

    while not addresses or len(addresses) < len(last):
        addresses.append(choose(*args, **kwargs, draw=draw).address)
    return dict(zip(addresses, last, strict=True))


def test_the_weight_of_a_target_is_its_number_of_free_slots():
    assert weights(offers(a=4, b=3, c=0), {}) == {"a": 4, "b": 3, "c": 0}


def test_sessions_that_are_opening_take_slots():
    assert weights(offers(a=4, b=3), {"a": 3, "b": 5, "c": 1}) == {"a": 1, "b": 0}


def test_without_free_slots_opening_sessions_count_as_slots():
    assert weights(offers(a=2, b=1, c=0), {"a": 2, "b": 1}) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(("avoid", "left"), [(["a"], {"b": 1}), (["a", "b"], {"a": 9, "b": 1})])
def test_an_address_to_avoid_is_chosen_only_if_there_is_no_other(avoid, left):
    assert weights(offers(a=9, b=1), {}, avoid) == left


@given(st.dictionaries(ADDRESSES, st.integers(1, 9), min_size=1), st.data())
def test_sessions_that_open_at_once_exceed_no_targets_free_slots(free_slots, data):
    opening: Counter[str] = Counter()
    for _ in range(data.draw(st.integers(1, sum(free_slots.values())))):
        opening[choose(offers(**free_slots), opening).address] += 1
    assert all(opening[address] <= number for address, number in free_slots.items())
