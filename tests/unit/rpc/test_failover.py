"""A session that lost its server retries with growing delays, up to a limit."""

from math import inf

import pytest

from specwhisper.errors import ServerFull, TargetUnavailable
from specwhisper.rpc import failover as failover_module
from specwhisper.rpc.failover import FIRST_DELAY_S, MAX_DELAY_S, Failover
from tests.clock import Clock

GONE = TargetUnavailable("It is gone.")


@pytest.fixture
def slept(monkeypatch) -> list[float]:
    """The delays that were slept."""
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr(failover_module.asyncio, "sleep", sleep)
    return slept


@pytest.fixture
def delays(slept, monkeypatch) -> list[float]:
    """The delays that were slept, each the longest that it may be."""
    monkeypatch.setattr("specwhisper.rpc.failover.random.uniform", lambda low, high: high)
    return slept


async def test_delays_are_drawn_up_to_a_bound_that_doubles(delays):
    failover = Failover(60, clock=Clock())
    for _ in range(8):
        await failover.wait(GONE)
    assert delays == [FIRST_DELAY_S * 2**i for i in range(5)] + [MAX_DELAY_S] * 3


async def test_delays_of_sessions_that_lost_the_same_server_differ(slept):
    full = ServerFull("No slot is free.")
    full.retry_after_s = 3.0
    for _ in range(50):
        await Failover(60, clock=Clock()).wait(full)
    assert all(3.0 <= delay_s <= 4.5 for delay_s in slept)
    assert len(set(slept)) > 1


async def test_progress_renews_the_limit_and_the_delays(delays):
    clock = Clock()
    failover = Failover(1.0, clock=clock)
    await failover.wait(GONE)
    await failover.wait(GONE)
    failover.progressed()
    clock.now_s += 50
    await failover.wait(GONE)
    assert delays == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, FIRST_DELAY_S]


async def test_time_on_a_server_does_not_count(delays):
    clock = Clock()
    failover = Failover(1.0, clock=clock)
    await failover.wait(GONE)
    failover.connected()
    clock.now_s += 50
    failover.lost()
    clock.now_s += 0.5
    await failover.wait(GONE)
    clock.now_s += 0.5
    with pytest.raises(TargetUnavailable):
        await failover.wait(GONE)


async def test_the_limit_starts_with_the_first_wait_that_is_limited(delays):
    clock = Clock()
    failover = Failover(1.0, clock=clock)
    await failover.wait(GONE, is_limited=False)
    clock.now_s += 50
    await failover.wait(GONE, is_limited=False)
    await failover.wait(GONE)
    clock.now_s += 1
    await failover.wait(GONE, is_limited=False)
    with pytest.raises(TargetUnavailable):
        await failover.wait(GONE)


async def test_a_server_that_names_a_time_is_not_tried_before(delays):
    full = ServerFull("No slot is free.")
    full.retry_after_s = 3.0
    failover = Failover(inf)
    await failover.wait(full)
    await failover.wait(GONE)
    assert delays == [4.5, 2 * FIRST_DELAY_S]
