"""Delays between attempts grow at random, up to a timeout."""

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


def test_delays_are_drawn_up_to_a_bound_that_doubles(monkeypatch):
    monkeypatch.setattr(backoff.random, "uniform", lambda low, high: high)
    attempts = Backoff(60, clock=Clock())
    assert [attempts.next_wait_s(GONE) for _ in range(8)] == [FIRST_S * 2**i for i in range(5)] + [MOST_S] * 3


def test_a_server_that_names_a_time_is_not_asked_before():
    full = ServerFull("No room.")
    full.retry_after_s = 3.0
    waits = [Backoff(60, clock=Clock()).next_wait_s(full) for _ in range(50)]
    assert all(3.0 <= wait_s <= 4.5 for wait_s in waits)
    assert len(set(waits)) > 1


async def test_the_error_is_raised_after_the_timeout():
    clock = Clock()
    attempts = Backoff(1.0, clock=clock)
    await attempts.wait(GONE)
    clock.now_s += 1.0
    with pytest.raises(TargetUnavailable, match="It is gone"):
        await attempts.wait(GONE)


def test_the_time_that_one_server_names_does_not_apply_to_another(monkeypatch):
    monkeypatch.setattr(backoff.random, "uniform", lambda low, high: high)
    full = ServerFull("No place.")
    full.retry_after_s = 5.0
    assert Backoff(60).next_wait_s(full, is_elsewhere=True) == FIRST_S
