"""Tries come later each time, at random, and end."""

from __future__ import annotations

import pytest

from specwhisper.errors import ServerFull, TargetUnavailable
from specwhisper.rpc import backoff
from specwhisper.rpc.backoff import FIRST_S, MOST_S, Backoff

GONE = TargetUnavailable("It is gone.")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_waits_are_drawn_up_to_a_bound_that_doubles(monkeypatch):
    monkeypatch.setattr(backoff.random, "uniform", lambda low, high: high)
    tries = Backoff(60, clock=Clock())
    assert [tries.next_wait_s(GONE) for _ in range(8)] == [FIRST_S * 2**i for i in range(5)] + [MOST_S] * 3


def test_a_server_that_says_when_is_not_asked_before():
    full = ServerFull("No room.")
    full.retry_after_s = 3.0
    waits = [Backoff(60, clock=Clock()).next_wait_s(full) for _ in range(50)]
    assert all(3.0 <= wait_s <= 4.5 for wait_s in waits)
    assert len(set(waits)) > 1


async def test_patience_ends_with_the_error():
    clock = Clock()
    tries = Backoff(1.0, clock=clock)
    await tries.wait(GONE)
    clock.now_s += 1.0
    with pytest.raises(TargetUnavailable, match="It is gone"):
        await tries.wait(GONE)


def test_another_server_has_not_said_when_to_knock(monkeypatch):
    monkeypatch.setattr(backoff.random, "uniform", lambda low, high: high)
    full = ServerFull("No place.")
    full.retry_after_s = 5.0
    assert Backoff(60).next_wait_s(full, is_elsewhere=True) == FIRST_S


def test_patience_is_put_off_by_the_time_in_which_nothing_was_waited_for(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(backoff.random, "uniform", lambda low, high: high)
    tries = Backoff(1.0, clock=lambda: now_s)
    now_s = 5.0
    assert tries.next_wait_s(GONE) is None
    tries.put_off(5.0)
    assert tries.next_wait_s(GONE) is not None
