"""A target hangs: its sessions resume at the other one, and Ray replaces it."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest

from tests.cluster.clients import Client, finish_and_check, open_sessions, started_clients
from tests.cluster.conftest import process_at, until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(400),
    # Ray warns that the interval of conftest.py is not set, although it is.
    pytest.mark.filterwarnings("ignore:`look_back_period_s`:FutureWarning"),
]


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
            await clients[2].start()
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
