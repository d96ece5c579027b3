"""Sessions are admitted for as long as everybody's answers come in time."""

from __future__ import annotations

import pytest

from specwhisper.errors import ServerFull
from specwhisper.options import DecodingOptions
from specwhisper.speculation.admission import AnswerTime
from specwhisper.types import Mode
from specwhisper.whisper.one_process import InlineExecutor
from specwhisper.whisper.verifier import Verifier
from tests.scripted import ScriptedModel


def test_without_a_budget_there_is_always_room():
    time = AnswerTime()
    time.observe(10**12)
    assert time.has_room(50)


def test_one_more_session_takes_its_share():
    time = AnswerTime(budget_ms=100)
    for _ in range(3):
        time.observe(80_000_000)
    assert time.mean_ms == 80
    assert (time.expected_ms(0), time.expected_ms(2), time.expected_ms(8)) == (0, 120, 90)
    assert time.has_room(0) and not time.has_room(2) and time.has_room(8)


def test_the_mean_follows_the_latest_answers():
    time = AnswerTime(budget_ms=100)
    time.observe(200_000_000)
    for _ in range(100):
        time.observe(10_000_000)
    assert 10 < time.mean_ms < 12


def test_a_target_over_its_budget_refuses_and_says_why():
    verifier = Verifier(ScriptedModel(4), executor=InlineExecutor(), latency_budget_ms=1e-9)
    verifier.open("a", Mode.TARGET_ONLY, DecodingOptions())
    assert verifier.check_room() == 3
    verifier._answer_time.observe(30_000_000)
    with pytest.raises(
        ServerFull, match="With 2 sessions the target would answer in 60 ms, more than its 0 ms"
    ):
        verifier.open("b", Mode.TARGET_ONLY, DecodingOptions())
    assert verifier.num_free_slots == 3
    verifier.close("a")
    verifier.open("b", Mode.TARGET_ONLY, DecodingOptions())
