"""Sessions are admitted while the response time is within the budget."""

import pytest

from experiments.common.models.scripted import ScriptedModel
from specwhisper.engine.verifier import Verifier
from specwhisper.errors import ServerFull
from specwhisper.options import DecodingOptions
from specwhisper.speculation.batching import ResponseTime
from specwhisper.types import Mode


def test_without_a_budget_every_session_is_admitted():
    time = ResponseTime()
    time.observe(10**12, 1)
    assert time.has_room(50)


def test_one_more_session_makes_responses_slower():
    time = ResponseTime(budget_ms=100)
    assert time.expected_ms(8) == 0
    for _ in range(3):
        time.observe(60_000_000, 4)
    assert (time.mean_ms, time.expected_ms(4), time.expected_ms(8)) == (60, 60, 120)
    assert time.has_room(5) and not time.has_room(6)
    assert ResponseTime(budget_ms=1).has_room(0)


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
