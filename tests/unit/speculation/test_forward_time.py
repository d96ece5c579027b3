"""The time of forward passes is split into a constant, a time per session and a time per token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.batching import BatchTime


def test_a_tokens_share_is_of_its_sessions_part():
    shares = []
    for num_sessions in (1, 4):
        time = BatchTime()
        assert time.token_share == 0.0, "it is not known yet"
        for width in [1, 5, 9] * 4:
            num_tokens = width * num_sessions
            time.observe(num_sessions, num_tokens, 20e6 + 1e6 * num_tokens)
        shares.append(time.token_share)
    assert shares == pytest.approx([0.05, 0.2], rel=0.05)
    for width in [1, 5, 9] * 400:
        time.observe(1, width, 1e6 * width)
    assert time.token_share > 0.95, "nearly all time is that of tokens"


batches = st.lists(st.tuples(st.integers(1, 64), st.integers(1, 16)), min_size=40, max_size=100)


@given(st.floats(0, 1e8), st.floats(0, 1e7), st.floats(0, 1e6), batches)
def test_the_times_of_a_session_and_of_a_token_are_found(constant, session, token, sizes):
    time = BatchTime()
    for number, (num_sessions, width) in enumerate(sizes):
        num_sessions += 8 * (number % 3)  # they differ
        num_tokens = num_sessions * width + number % 5
        time.observe(num_sessions, num_tokens, constant + session * num_sessions + token * num_tokens)
    scale = constant + session + token
    assert time.token_ns == pytest.approx(token, rel=0.02, abs=0.02 * scale + 1)
    assert time.session_ns == pytest.approx(session, rel=0.02, abs=0.02 * scale + 1)


@given(batches, st.lists(st.floats(0, 1e10), min_size=100, max_size=100))
def test_no_times_make_an_estimate_negative(sizes, times_ns):
    time = BatchTime()
    for (num_sessions, width), forward_ns in zip(sizes, times_ns, strict=False):
        time.observe(num_sessions, num_sessions * width, forward_ns)
        assert time.session_ns >= 0 and time.token_ns >= 0
        assert 0 <= time.token_share <= 1


def test_equally_many_sessions_take_a_share_of_what_is_not_the_tokens():
    time = BatchTime()
    for width in [1, 5, 9] * 10:
        time.observe(8, 8 * width, 16e6 + 1e5 * 8 * width)
    assert time.token_ns == pytest.approx(1e5, rel=0.01)
    assert time.session_ns == pytest.approx(1e6, rel=0.01)
