"""A standby target takes sessions once another target is lost, and only then."""

from __future__ import annotations

import pytest

from specwhisper.errors import ServerFull
from specwhisper.types import Limits
from specwhisper_draft_server.link.link import TargetLink
from tests.rpc.services import (
    audio_requests,
    draft_server,
    eventually,
    expected_finals,
    finals,
    recording,
    streaming_config,
    target_alone,
    target_server,
)

ONE = Limits(max_sessions=1)


async def test_while_no_target_is_lost_a_standby_takes_nothing():
    async with (
        target_server(limits=ONE) as active,
        target_server(standby=True) as standby,
        draft_server(f"{active.address},{standby.address}") as draft,
    ):
        link = TargetLink(active.address, standby.address)
        for _ in range(20):
            assert (await link.find_room())._offer.address == active.address
        requests = [streaming_config(), *audio_requests(recording(4.0))]
        call = draft.stub.StreamingRecognize()
        await call.write(requests[0])
        await eventually(lambda: active.num_free_slots == 0)
        with pytest.raises(ServerFull):  # full, and not lost
            await link.find_room()
        assert standby.num_free_slots > 0
        call.cancel()
        await link.close()


async def test_sessions_of_a_lost_target_continue_at_the_standby():
    pcm = recording(40.0)
    requests = [streaming_config(), *audio_requests(pcm)]
    async with target_server(standby=True) as standby:
        num_slots = standby.num_free_slots
        async with target_server() as active, draft_server(f"{active.address},{standby.address}") as draft:
            call = draft.stub.StreamingRecognize()
            for request in requests[: len(requests) // 2]:
                await call.write(request)
            await eventually(lambda: active.service.num_sessions == 1)
            assert standby.num_free_slots == num_slots
            await active.server.stop(0.0)
            await eventually(lambda: standby.service.num_sessions == 1)
            for request in requests[len(requests) // 2 :]:
                await call.write(request)
            await call.done_writing()
            assert finals([response async for response in call]) == expected_finals(target_alone(40.0))
            link = TargetLink(active.address, standby.address)
            assert (await link.find_room())._offer.address == standby.address
            await link.close()
