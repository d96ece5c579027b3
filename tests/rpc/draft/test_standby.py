"""A standby target takes sessions once another target is lost, and only then."""

from __future__ import annotations

from specwhisper_draft_server.link.link import TargetLink
from tests.rpc.services import (
    HalfSent,
    draft_server,
    eventually,
    expected_finals,
    finals,
    target_alone,
    target_server,
)


async def test_sessions_of_a_lost_target_continue_at_the_standby():
    async with target_server(standby=True) as standby:
        num_slots = standby.num_free_slots
        async with target_server() as active, draft_server(f"{active.address},{standby.address}") as draft:
            client = HalfSent(draft)
            await client.begin()
            assert active.service.num_sessions == 1
            assert standby.num_free_slots == num_slots
            await active.server.stop(0.0)
            await eventually(lambda: standby.service.num_sessions == 1)
            assert finals(await client.end()) == expected_finals(target_alone(65.0))
            link = TargetLink(active.address, standby.address)
            assert (await link.find_room())._offer.address == standby.address
            await link.close()
