"""Targets under Ray: sessions spread over them, survive a kill, and migrate during updates and scaling."""

from contextlib import suppress

import psutil
import pytest

from tests.cluster.clients import Client, finish_and_check, open_sessions, started_clients
from tests.cluster.conftest import controller_process, kill_controller, process_at, until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(400),
    # Ray warns that the interval of conftest.py is not set, although it is.
    pytest.mark.filterwarnings("ignore:`look_back_period_s`:FutureWarning"),
]


async def test_sessions_spread_evenly_and_survive_a_killed_target(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 8) as clients:
        sessions = await open_sessions(targets)
        assert sorted(sessions.values()) == [4, 4]
        process_at(next(iter(sessions))).kill()
        await finish_and_check(checkpoints, clients)


async def test_sessions_migrate_to_targets_of_the_next_version(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 3) as clients:
        before = (await open_sessions(targets)).keys()
        targets.deploy_next_version()
        await until(lambda: targets.num_running is None)
        await targets.wait_until_running(2)
        assert not before & (await open_sessions(targets)).keys()
        await finish_and_check(checkpoints, clients)


async def test_targets_scale_with_sessions(targets, checkpoints):
    await targets.scale_with_sessions()
    async with started_clients(targets, checkpoints, 3) as first:
        await targets.wait_until_running(2)
        async with started_clients(targets, checkpoints, 1) as last:
            assert sorted((await open_sessions(targets)).values()) == [1, 3]
            await finish_and_check(checkpoints, first)
            await targets.wait_until_running(1)  # the newest one stops, and its sessions migrate
            await finish_and_check(checkpoints, last)


async def test_sessions_continue_and_open_without_the_locator(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 1) as clients:
        process_at(targets.locator).kill()
        clients.append(Client(clients[0].draft, seed=1))
        await clients[1].begin()
        await finish_and_check(checkpoints, clients)


async def test_sessions_continue_and_open_without_the_controller(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 2) as clients:
        before = (await open_sessions(targets)).keys()
        killed = controller_process()
        kill_controller()
        clients.append(Client(clients[0].draft, seed=2))
        await clients[2].begin()
        await finish_and_check(checkpoints, clients)
    await until(lambda: not killed.is_running())
    await targets.wait_until_running(2)
    assert controller_process() != killed
    assert (await open_sessions(targets)).keys() == before, "the new controller keeps the targets that run"
    process_at(next(iter(before))).kill()
    await until(lambda: targets.num_running != 2)
    await targets.wait_until_running(2)  # and replaces one that dies


async def test_sessions_resume_elsewhere_and_a_hanging_target_is_replaced(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 2) as clients:
        before = await open_sessions(targets)
        assert sorted(before.values()) == [1, 1]
        hanging = next(iter(before))
        process = process_at(hanging)
        process.suspend()
        try:
            clients.append(Client(clients[0].draft, seed=2))
            await clients[2].begin()
            await finish_and_check(checkpoints, clients)
            await until(lambda: targets.num_running != 2)
            await targets.wait_until_running(2)  # after the drain timeout of the hanging one
            after = await open_sessions(targets)
            assert hanging not in after
            assert before.keys() - {hanging} < after.keys()
            process.resume()  # Ray has asked it to stop: it closes its port, though its process stays
            await until(lambda: not listens(process, hanging))
        finally:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def listens(process: psutil.Process, address: str) -> bool:
    """Return whether a process, which may have ended, takes connections at an address."""
    with suppress(psutil.NoSuchProcess):
        connections = process.net_connections("tcp")
        return any(c.status == "LISTEN" and address.endswith(f":{c.laddr.port}") for c in connections)
    return False
