"""A session tries each server at once, then waits before it tries one again."""

import pytest

from specwhisper.errors import InvalidRequest, ServerFull, TargetUnavailable
from specwhisper.rpc import failover as failover_module
from specwhisper_client.attempts import Attempts
from specwhisper_client.servers import Servers

GONE = TargetUnavailable("It is gone.")
NAMES = ("127.0.0.1:1", "127.0.0.1:2")


@pytest.fixture
def delays(monkeypatch) -> list[float]:
    """The delays that were slept."""
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr(failover_module.asyncio, "sleep", sleep)
    return slept


async def try_once(attempts: Attempts, error: Exception = GONE, **how) -> str:
    """Make one attempt that fails; return its address."""
    async with attempts.connection() as connection:
        assert attempts.address == connection.address
    await attempts.retry(error, **how)
    return connection.address


async def test_untried_servers_follow_at_once_and_known_ones_after_a_delay(delays):
    attempts = Attempts(Servers(",".join(NAMES)), 60.0)
    first = await try_once(attempts)
    assert (delays, attempts.is_retrying) == ([], True)
    assert {first, await try_once(attempts)} == set(NAMES)
    assert len(delays) == 1
    await try_once(attempts)
    assert len(delays) == 1, "after the delay, both are untried again"
    attempts.progressed()
    assert not attempts.is_retrying
    assert {await try_once(attempts), await try_once(attempts)} == set(NAMES)


async def test_an_error_is_raised_if_no_attempt_is_left(delays):
    for attempts, how in (
        (Attempts(Servers(NAMES[0])), {}),
        (Attempts(Servers(NAMES[0]), 60.0), {"may_wait": False}),
    ):
        with pytest.raises(TargetUnavailable, match="It is gone"):
            await try_once(attempts, **how)
    with pytest.raises(InvalidRequest):
        await try_once(Attempts(Servers(",".join(NAMES)), 60.0), InvalidRequest("Not like that."))
    assert delays == []


async def test_a_time_limit_can_be_extended(delays):
    attempts = Attempts(Servers(NAMES[0]))
    attempts.extend(60.0)
    full = ServerFull("No slot is free.")
    full.retry_after_s = 2.0
    await try_once(attempts, full)
    assert 2.0 <= delays[0] <= 3.0
