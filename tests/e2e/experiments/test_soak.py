"""A session of each kind of experiments.soak succeeds and leaves no resource."""

from __future__ import annotations

from random import Random

import pytest

from experiments.soak.__main__ import look
from experiments.soak.census import COUNTED
from experiments.soak.servers import running_servers
from experiments.soak.sessions import Kind, Tally, run_session
from specwhisper_client.servers import CONNECTIONS

pytestmark = pytest.mark.timeout(600)


@pytest.mark.nightly
async def test_no_kind_of_session_leaves_resources():
    censuses = {"target": [], "draft server": [], "gateway": []}
    async with running_servers() as servers:
        for _ in range(CONNECTIONS):  # the gateway opens them as it needs them
            await run_session(servers, Kind.GATEWAY, Random(0))
        for seed in range(2):
            for kind in Kind:
                await run_session(servers, kind, Random(seed))
            await look(servers, Tally(), censuses)
    for name, (first, second) in censuses.items():
        for counted in set(COUNTED) - {"threads"}:  # pools fill as they are needed
            assert getattr(second, counted) <= getattr(first, counted), (name, counted)
        assert (second.taken_slots, second.sessions) == (0, 0)
