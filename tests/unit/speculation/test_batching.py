"""Sessions are admitted within the budget, and each takes part soon; the time of forward passes is split."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.scripted import ScriptedModel
from specwhisper.engine.verifier import Verifier
from specwhisper.errors import ServerFull
from specwhisper.options import DecodingOptions
from specwhisper.speculation.batching import BatchTime, Request, ResponseTime, next_batch
from specwhisper.types import Mode


def test_one_more_session_makes_responses_slower():
    time = ResponseTime(budget_ms=100)
    assert time.expected_ms(8) == 0
    for _ in range(3):
        time.observe(60_000_000, 4)
    assert (time.mean_ms, time.expected_ms(4), time.expected_ms(8)) == (60, 60, 120)
    assert time.has_room(5) and not time.has_room(6)
    assert ResponseTime(budget_ms=1).has_room(0)
    no_budget = ResponseTime()
    no_budget.observe(10**12, 1)
    assert no_budget.has_room(50)


def test_a_burst_of_sessions_is_limited_before_their_first_responses():
    time = ResponseTime(budget_ms=100)
    time.observe(30_000_000, 1)
    assert [time.has_room(number) for number in (1, 2, 3, 63)] == [True, True, False, False]


def test_the_mean_follows_the_latest_responses():
    time = ResponseTime(budget_ms=100)
    time.observe(200_000_000, 2)
    for _ in range(100):
        time.observe(10_000_000, 2)
    assert 10 < time.mean_ms < 12


def test_a_target_over_its_budget_refuses_with_the_reason():
    verifier = Verifier(ScriptedModel(4), latency_budget_ms=1e-9)
    verifier.open("a", Mode.TARGET_ONLY, DecodingOptions.greedy())
    assert verifier.check_room() == 3
    verifier._response_time.observe(30_000_000, 1)
    with pytest.raises(
        ServerFull, match="With 2 sessions the target would answer in 60 ms, more than its 0 ms"
    ):
        verifier.open("b", Mode.TARGET_ONLY, DecodingOptions.greedy())
    assert verifier.num_free_slots == 3
    verifier.close("a")
    verifier.open("b", Mode.TARGET_ONLY, DecodingOptions.greedy())


requests = st.lists(
    st.builds(
        Request,
        num_needed=st.integers(1, 230),
        num_candidates=st.integers(0, 16),
        num_missed=st.integers(0, 5),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize(
    ("requests", "max_tokens", "parts"),
    [
        ([Request(1, 5), Request(4, 0), Request(1, 16)], 100, {0: 5, 1: 0, 2: 16}),  # all, if there is room
        ([Request(1, 16), Request(1, 16)], 20, {0: 16, 1: 2}),  # candidates beyond the limit are left out
        ([Request(1, 16), Request(1, 16, num_missed=1)], 17, {1: 16}),  # who missed one has priority
        ([Request(228, 3)], 100, {0: 0}),  # a long prompt alone may exceed the limit
        ([Request(1, 3), Request(228, 3)], 100, {0: 3}),
    ],
)
def test_sessions_of_a_forward_pass(requests, max_tokens, parts):
    assert next_batch(requests, max_tokens) == parts


@given(requests, st.integers(1, 300))
def test_a_forward_pass_is_never_empty_or_too_long(requests, max_tokens):
    parts = next_batch(requests, max_tokens)
    assert parts and list(parts) == sorted(parts)
    assert all(num <= requests[index].num_candidates for index, num in parts.items())
    num_tokens = sum(requests[index].num_needed + num for index, num in parts.items())
    assert num_tokens <= max_tokens or len(parts) == 1


@given(requests, st.integers(1, 300))
def test_no_session_waits_forever(requests, max_tokens):
    """A session misses a forward pass only for one that has missed at least as many."""
    waiting = [replace(request, num_missed=0) for request in requests]
    unserved, rounds = set(range(len(waiting))), 0
    while unserved:
        served = next_batch(waiting, max_tokens).keys()
        unserved -= served
        waiting = [
            replace(request, num_missed=0 if i in served else request.num_missed + 1)
            for i, request in enumerate(waiting)
        ]
        rounds += 1
        assert rounds <= len(waiting) + 1


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
def test_the_time_of_a_token_is_found(constant, session, token, sizes):
    time = BatchTime()
    for number, (num_sessions, width) in enumerate(sizes):
        num_sessions += 8 * (number % 3)  # they differ
        num_tokens = num_sessions * width + number % 5
        time.observe(num_sessions, num_tokens, constant + session * num_sessions + token * num_tokens)
    scale = constant + session + token
    assert time.token_ns == pytest.approx(token, rel=0.02, abs=0.02 * scale + 1)


@given(batches, st.lists(st.floats(0, 1e10), min_size=100, max_size=100))
def test_no_times_make_an_estimate_negative(sizes, times_ns):
    time = BatchTime()
    for (num_sessions, width), forward_ns in zip(sizes, times_ns, strict=False):
        time.observe(num_sessions, num_sessions * width, forward_ns)
        assert time.token_ns >= 0
        assert 0 <= time.token_share <= 1
