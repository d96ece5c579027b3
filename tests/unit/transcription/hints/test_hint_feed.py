"""Hints reach each server that a session continues on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.hints import HintFeed, check_hint, hint_at
from specwhisper.types import TimedHint


def test_the_next_server_gets_what_was_not_replaced():
    feed = HintFeed()
    first = []
    for start_sample, text in ((0, "a"), (20, "c"), (10, "b"), (30, "d")):
        feed.put(TimedHint(start_sample, text))
        first += feed.take()
    assert first == [TimedHint(0, "a"), TimedHint(20, "c"), TimedHint(10, "b"), TimedHint(30, "d")]
    feed.restart()
    assert feed.take(2) == [TimedHint(0, "a"), TimedHint(10, "b")]
    feed.put(TimedHint(40, "e"))
    assert feed.take() == [TimedHint(30, "d"), TimedHint(40, "e")]


def test_what_was_replaced_before_it_was_taken_is_never_sent():
    feed = HintFeed()
    for length in range(1, 1_000):
        feed.put(TimedHint(5, "a" * length))
    assert feed.take() == [TimedHint(5, "a" * 999)]
    assert feed.take() == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=30))
def test_taken_at_any_time_a_server_has_the_same_text(puts):
    feed, server = HintFeed(), []
    for number, (start_sample, most) in enumerate(puts):
        feed.put(TimedHint(start_sample, str(number)))
        for hint in feed.take(most):
            server = [kept for kept in server if kept.start_sample < hint.start_sample] + [hint]
    for hint in feed.take():
        server = [kept for kept in server if kept.start_sample < hint.start_sample] + [hint]
    feed.restart()
    assert server == feed.take()


def test_the_oldest_are_forgotten_beyond_the_limit():
    feed = HintFeed()
    for sample in range(1_000):
        feed.put(TimedHint(sample, "x" * 4_000))
        if sample == 980:
            assert len(feed.take(10)) == 10
    kept = [hint.start_sample for hint in feed.take()]
    assert kept == list(range(1_000 - len(kept), 1_000))
    assert 30 < len(kept) <= 50
    feed.restart()
    assert feed.take()[-1].start_sample == 999


def test_text_that_is_no_unicode_and_times_before_the_audio_are_refused():
    assert hint_at(0.5, "a") == TimedHint(8_000, "a")
    for start_s, text in ((0, "\ud800"), (-1, "a"), (float("nan"), "a"), (float("inf"), "a"), (1e9, "a")):
        with pytest.raises(InvalidRequest, match=r"Unicode|start_s"):
            hint_at(start_s, text)


def test_a_long_text_is_refused_by_its_bytes():
    check_hint(TimedHint(0, "é" * 2_000))
    with pytest.raises(InvalidRequest, match="4002 bytes"):
        check_hint(TimedHint(0, "é" * 2_001))


def test_another_server_gets_what_may_be_said_from_its_window_on():
    feed = HintFeed()
    for sample in (0, 10, 20, 30):
        feed.put(TimedHint(sample, str(sample)))
    assert len(feed.take()) == 4
    feed.restart(25)
    assert [hint.start_sample for hint in feed.take()] == [20, 30], "the one before may not be over yet"
