"""Many short waits have one timer, and only a long one is reported."""

import asyncio
from math import inf

import pytest

from specwhisper.rpc.eviction import TimeLimit


class Timer:
    def __init__(self, at_s, call):
        self.at_s, self.call = at_s, call
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True


class Loop:
    """An event loop whose time only the test advances."""

    def __init__(self):
        self.now_s = 100.0
        self.timers = []

    def time(self):
        return self.now_s

    def call_later(self, delay_s, call):
        self.timers.append(Timer(self.now_s + delay_s, call))
        return self.timers[-1]

    def advance(self, seconds):
        end_s = self.now_s + seconds
        for timer in self.timers:  # a call may add one
            if timer.at_s <= end_s and not timer.is_cancelled:
                self.now_s = timer.at_s
                timer.cancel()
                timer.call()
        self.now_s = end_s


@pytest.fixture
def loop(monkeypatch):
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return loop


def test_short_waits_share_timers_and_are_not_reported(loop):
    exceeded = []
    limit = TimeLimit(2.0, lambda: exceeded.append(loop.now_s))
    for _ in range(100):
        with limit:
            loop.advance(0.1)
        loop.advance(0.1)
    assert not exceeded
    assert len(loop.timers) <= 20 / 2.0 + 1


def test_a_long_wait_is_reported_when_it_is_too_long_and_once(loop):
    exceeded = []
    limit = TimeLimit(2.0, lambda: exceeded.append(loop.now_s))
    with limit:
        loop.advance(1.5)
    with limit:
        loop.advance(10.0)
    assert exceeded == [103.5]


def test_without_a_limit_or_after_close_there_is_no_timer(loop):
    with TimeLimit(inf, pytest.fail):
        loop.advance(1e6)
    assert not loop.timers
    limit = TimeLimit(2.0, pytest.fail)
    with limit:
        pass
    limit.close()
    loop.advance(10.0)
    assert all(timer.is_cancelled for timer in loop.timers)
