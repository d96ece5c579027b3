"""Targets under Ray: sessions spread over them, outlive them, and do not notice that they change."""

from __future__ import annotations

import pytest

from experiments.common.models.speech import EnergyVad
from tests.cluster.clients import (
    WAIT_S,
    Client,
    Speaker,
    check_all,
    clients_of,
    running,
    said_alone,
    sessions_at,
)
from tests.cluster.conftest import process_at
from tests.rpc.services import eventually

pytestmark = [
    pytest.mark.timeout(400),
    # Ray does not see that the interval is set, where it wants it set.
    pytest.mark.filterwarnings("ignore:`look_back_period_s`:FutureWarning"),
]


@pytest.fixture(autouse=True)
def hearing(monkeypatch):
    monkeypatch.setattr("specwhisper_draft_server.voice_activity._model", EnergyVad)


async def test_sessions_spread_evenly_and_outlive_a_target_that_is_killed(cluster, checkpoints):
    cluster.deploy()
    await running(cluster, 2)
    async with clients_of(cluster, checkpoints, 8) as clients:
        spread = await sessions_at(cluster)
        assert sorted(spread.values()) == [4, 4]
        process_at(next(iter(spread))).kill()
        await check_all(checkpoints, clients)


async def test_sessions_go_on_and_open_while_the_locator_is_away(cluster, checkpoints):
    cluster.deploy()
    await running(cluster, 2)
    async with clients_of(cluster, checkpoints, 1) as clients:
        process_at(cluster.locator).kill()
        clients.append(Client(clients[0].draft, seed=1))
        await clients[1].begin()
        await check_all(checkpoints, clients)


async def test_another_version_takes_the_sessions_over(cluster, checkpoints):
    cluster.deploy()
    await running(cluster, 2)
    async with clients_of(cluster, checkpoints, 3) as clients:
        speaker = Speaker(clients[0].draft)
        await speaker.begin()
        before = (await sessions_at(cluster)).keys()
        cluster.deploy_next_version()
        await eventually(lambda: cluster.num_running == -1, within_s=WAIT_S)
        await running(cluster, 2)
        assert not before & (await sessions_at(cluster)).keys()
        await check_all(checkpoints, clients)
        assert await speaker.end() == await said_alone(checkpoints)


async def test_targets_come_and_go_with_the_sessions(cluster, checkpoints):
    cluster.scale()
    await running(cluster, 1)
    async with clients_of(cluster, checkpoints, 3) as first:
        await running(cluster, 2)
        async with clients_of(cluster, checkpoints, 1) as last:
            speaker = Speaker(last[0].draft)
            await speaker.begin()
            assert sorted((await sessions_at(cluster)).values()) == [2, 3]
            await check_all(checkpoints, first)
            await running(cluster, 1)  # the newest one goes, and its sessions to the other
            await check_all(checkpoints, last)
            assert await speaker.end() == await said_alone(checkpoints)
