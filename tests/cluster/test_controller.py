"""Serve's controller is killed: sessions do not need it, and its successor continues its work."""

from __future__ import annotations

import pytest

from tests.cluster.clients import Client, finish_and_check, open_sessions, started_clients
from tests.cluster.conftest import controller_process, kill_controller, process_at, until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(400),
    # Ray warns that the interval of conftest.py is not set, although it is.
    pytest.mark.filterwarnings("ignore:`look_back_period_s`:FutureWarning"),
]


async def test_sessions_continue_and_open_without_the_controller(targets, checkpoints):
    await targets.deploy()
    async with started_clients(targets, checkpoints, 2) as clients:
        before = (await open_sessions(targets)).keys()
        killed = controller_process()
        kill_controller()
        clients.append(Client(clients[0].draft, seed=2))
        await clients[2].start()
        await finish_and_check(checkpoints, clients)
    await until(lambda: not killed.is_running())
    await targets.wait_until_running(2)
    assert controller_process() != killed
    assert (await open_sessions(targets)).keys() == before, "the new controller keeps the targets that run"
    process_at(next(iter(before))).kill()
    await until(lambda: targets.num_running != 2)
    await targets.wait_until_running(2)  # and replaces one that dies
