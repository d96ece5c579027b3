"""A target hangs: its sessions go on at another one, and Ray puts one in its place."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest

from tests.cluster.clients import WAIT_S, Client, check_all, clients_of, running, sessions_at
from tests.cluster.conftest import process_at
from tests.rpc.services import eventually

pytestmark = [
    # Ray takes three checks of 15 s to be sure that it hangs.
    pytest.mark.nightly,
    pytest.mark.timeout(400),
    # Ray does not see that the interval is set, where it wants it set.
    pytest.mark.filterwarnings("ignore:`look_back_period_s`:FutureWarning"),
]


async def test_sessions_go_on_and_open_and_another_target_takes_the_place_of_one_that_hangs(
    cluster, checkpoints
):
    cluster.deploy()
    await running(cluster, 2)
    async with clients_of(cluster, checkpoints, 2) as clients:
        before = await sessions_at(cluster)
        assert sorted(before.values()) == [1, 1]
        hanging = next(iter(before))
        process = process_at(hanging)
        process.suspend()
        try:
            clients.append(Client(clients[0].draft, seed=2))
            await clients[2].begin()
            await check_all(checkpoints, clients)
            await eventually(lambda: cluster.num_running != 2, within_s=WAIT_S)
            await running(cluster, 2)  # behind the other's grace
            after = await sessions_at(cluster)
            assert hanging not in after
            assert before.keys() - {hanging} < after.keys()
            process.resume()  # Ray has told it to end: it stops serving, though its process stays
            await eventually(lambda: not listens(process, hanging), within_s=WAIT_S)
        finally:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def listens(process: psutil.Process, address: str) -> bool:
    """Tell whether a process that may have ended takes connections at an address."""
    with suppress(psutil.NoSuchProcess):
        open_ones = process.net_connections("tcp")
        return any(c.status == "LISTEN" and address.endswith(f":{c.laddr.port}") for c in open_ones)
    return False
