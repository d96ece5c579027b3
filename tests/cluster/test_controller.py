"""Ray's controller dies: it starts, counts and ends replicas, and nothing that a session needs."""

from __future__ import annotations

import pytest

from tests.cluster.clients import WAIT_S, Client, check_all, clients_of, running, sessions_at
from tests.cluster.conftest import process_at
from tests.rpc.services import eventually

pytestmark = [
    # A second cluster takes half a minute: the others together shall not take much more than two.
    pytest.mark.nightly,
    pytest.mark.timeout(400),
    # Ray does not see that the interval is set, where it wants it set.
    pytest.mark.filterwarnings("ignore:`look_back_period_s`:FutureWarning"),
]


async def test_sessions_go_on_and_open_while_the_controller_is_away(cluster, checkpoints):
    cluster.deploy()
    await running(cluster, 2)
    async with clients_of(cluster, checkpoints, 2) as clients:
        before = (await sessions_at(cluster)).keys()
        controller = cluster.controller_process()
        cluster.kill_controller()
        clients.append(Client(clients[0].draft, seed=2))
        await clients[2].begin()
        await check_all(checkpoints, clients)
    await eventually(lambda: not controller.is_running(), within_s=WAIT_S)
    await running(cluster, 2)
    assert cluster.controller_process() != controller
    assert (await sessions_at(cluster)).keys() == before  # it has found those that run, and started no others
    process_at(next(iter(before))).kill()
    await eventually(lambda: cluster.num_running != 2, within_s=WAIT_S)
    await running(cluster, 2)  # and goes on with its work
