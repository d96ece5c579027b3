"""A session tries each server at once, then waits before it tries one again."""

import pytest

from specwhisper.errors import InvalidRequest, ServerFull, TargetUnavailable
from specwhisper.rpc import failover as failover_module
from specwhisper_client.servers import Attempts, Servers

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


async def try_once(attempts: Attempts, error: Exception = GONE, timeout_s: float = 60.0) -> str:
    """Make one attempt that fails; return its address."""
    async with attempts.connection() as connection:
        assert attempts.address == connection.address
    await attempts.retry(error, timeout_s)
    return connection.address


async def test_untried_servers_follow_at_once_and_known_ones_after_a_delay(delays):
    attempts = Attempts(Servers(",".join(NAMES)))
    full = ServerFull("No slot is free.")
    full.retry_after_s = 600.0
    first = await try_once(attempts, full)
    assert (delays, attempts.is_retrying) == ([], True)
    assert {first, await try_once(attempts)} == set(NAMES)
    assert len(delays) == 1
    await try_once(attempts)
    assert len(delays) == 1, "after the delay, both are untried again"
    attempts.progressed()
    assert not attempts.is_retrying
    assert {await try_once(attempts), await try_once(attempts)} == set(NAMES)


async def test_an_error_is_raised_if_no_attempt_is_left(delays):
    with pytest.raises(TargetUnavailable, match="It is gone"):
        await try_once(Attempts(Servers(NAMES[0])), timeout_s=0.0)
    with pytest.raises(InvalidRequest):
        await try_once(Attempts(Servers(",".join(NAMES))), InvalidRequest("Not like that."))
    assert delays == []
