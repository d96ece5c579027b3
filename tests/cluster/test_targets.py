"""Targets under Ray: sessions spread over them, survive a kill, and migrate during updates and scaling."""

from __future__ import annotations

import pytest

from experiments.common.models.speech import EnergyVad
from tests.cluster.clients import (
    Client,
    Speaker,
    finish_and_check,
    open_sessions,
    started_clients,
    undisturbed_talk,
)
from tests.cluster.conftest import process_at, until

pytestmark = [
    pytest.mark.timeout(400),
    # Ray warns that the interval of conftest.py is not set, although it is.
    pytest.mark.filterwarnings("ignore:`look_back_period_s`:FutureWarning"),
]


@pytest.fixture(autouse=True)
def noise_is_speech(monkeypatch):
    """Replace silero-vad by a model that takes loud noise for speech."""
    monkeypatch.setattr("specwhisper_draft_server.voice_activity._model", EnergyVad)


@pytest.mark.nightly
async def test_sessions_spread_evenly_and_survive_a_killed_target(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 8) as clients:
        sessions = await open_sessions(targets)
        assert sorted(sessions.values()) == [4, 4]
        process_at(next(iter(sessions))).kill()
        await finish_and_check(checkpoints, clients)


@pytest.mark.nightly
async def test_sessions_migrate_to_targets_of_the_next_version(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 3) as clients:
        speaker = Speaker(clients[0].draft)
        await speaker.start()
        before = (await open_sessions(targets)).keys()
        targets.deploy_next_version()
        await until(lambda: targets.num_running is None)
        await targets.wait_until_running(2)
        assert not before & (await open_sessions(targets)).keys()
        await finish_and_check(checkpoints, clients)
        assert await speaker.finish() == await undisturbed_talk(checkpoints)


@pytest.mark.nightly
async def test_targets_scale_with_sessions(targets, checkpoints):
    await targets.scale_with_sessions()
    async with started_clients(targets, checkpoints, 3) as first:
        await targets.wait_until_running(2)
        async with started_clients(targets, checkpoints, 1) as last:
            speaker = Speaker(last[0].draft)
            await speaker.start()
            assert sorted((await open_sessions(targets)).values()) == [2, 3]
            await finish_and_check(checkpoints, first)
            await targets.wait_until_running(1)  # the newest one stops, and its sessions migrate
            await finish_and_check(checkpoints, last)
            assert await speaker.finish() == await undisturbed_talk(checkpoints)


@pytest.mark.nightly
async def test_sessions_continue_and_open_without_the_locator(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 1) as clients:
        process_at(targets.locator).kill()
        clients.append(Client(clients[0].draft, seed=1))
        await clients[1].start()
        await finish_and_check(checkpoints, clients)
