"""Hints reach each server that a session continues on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.hints import HintFeed, check_hint, hint_at
from specwhisper.types import TimedHint


def test_what_was_replaced_before_it_was_taken_is_never_sent():
    feed = HintFeed()
    for length in range(1, 1_000):
        feed.put(TimedHint(5, "a" * length))
    assert feed.take() == [TimedHint(5, "a" * 999)]
    assert feed.take() == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=30), st.integers(0, 9))
def test_taken_at_any_time_a_server_has_the_same_text(puts, start_sample):
    """Another one gets what may be said from its window on; a hint that began before may not be over."""
    feed, server = HintFeed(), []
    for number, (at, most) in enumerate([*puts, (9, None)]):
        feed.put(TimedHint(at, str(number)))
        for hint in feed.take(most):
            server = [kept for kept in server if kept.start_sample < hint.start_sample] + [hint]
    feed.restart()
    assert server == feed.take(2) + feed.take()
    feed.restart(start_sample)
    first = max([0, *(number for number, kept in enumerate(server) if kept.start_sample <= start_sample)])
    assert feed.take() == server[first:]


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
