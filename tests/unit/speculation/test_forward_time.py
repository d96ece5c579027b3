"""The time of forward passes is split into a constant and a time per token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.forward_time import ForwardTime, TokenShare


def fitted(*observed: tuple[int, float]) -> ForwardTime:
    forward_time = ForwardTime()
    for num_tokens, forward_ns in observed:
        forward_time.observe(num_tokens, forward_ns)
    return forward_time


@given(st.floats(0, 1e9), st.floats(0, 1e7), st.lists(st.integers(1, 300), min_size=2, max_size=400))
def test_a_linear_time_is_found(constant, per_token, sizes):
    found = fitted(*((size, constant + per_token * size) for size in sizes))
    if max(sizes) - min(sizes) > 5 and len(sizes) < 20:
        assert found.per_token_ns == pytest.approx(per_token, rel=1e-6, abs=1e-3)
        assert found.constant_ns == pytest.approx(constant, rel=1e-6, abs=1)
    assert found.per_token_ns >= 0
    assert found.constant_ns >= 0


def test_the_constant_part_is_0_until_sizes_differ():
    assert ForwardTime().constant_ns == 0
    assert not fitted(*[(5, 1e6)] * 10).is_known
    assert fitted(*[(5, 1e6)] * 10).constant_ns == fitted(*[(5, 1e6)] * 10).per_token_ns == 0


def test_recent_forward_passes_count_more():
    fast, slow = ([(size % 50 + 1, each * (100 + size % 50)) for size in range(1000)] for each in (1e4, 5e4))
    assert fitted(*fast, *slow).constant_ns == pytest.approx(fitted(*slow).constant_ns, rel=0.05)


def test_the_time_of_a_token_is_never_negative():
    found = fitted((1, 10e6), (20, 5e6), (40, 1e6))
    assert found.per_token_ns == 0
    assert found.constant_ns == pytest.approx(16e6 / 3, rel=0.01)


def test_a_tokens_share_is_of_its_sessions_part():
    shares = []
    for num_sessions in (1, 4):
        share = TokenShare()
        assert share() == 0.0, "it is not known yet"
        for width in [1, 5, 9] * 4:
            share.observe([width] * num_sessions, 20e6 + 1e6 * width * num_sessions)
        shares.append(share())
    assert shares == pytest.approx([0.05, 0.2], rel=0.05)
    for width in [1, 5, 9] * 400:
        share.observe([width], 1e6 * width)
    assert share() > 0.99, "all time is that of tokens"
