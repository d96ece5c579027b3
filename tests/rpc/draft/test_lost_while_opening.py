"""A session outlives targets that are lost while they open it."""

from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from specwhisper.errors import TargetUnavailable
from specwhisper.rpc.channels import open_channel
from tests.rpc.bad_network import BadNetwork
from tests.rpc.network import cut_network
from tests.rpc.services import (
    Target,
    all_free,
    as_target,
    audio_requests,
    check_text,
    draft_server,
    eventually,
    recording,
    refusal,
    streaming_config,
    target_server,
)

pytestmark = pytest.mark.usefixtures("fast_retries")


@asynccontextmanager
async def cutting_network(target: Target, num_lost: int):
    """Run a network that cuts the connection during Describe."""

    class CuttingNetwork(BadNetwork):
        num_asked = 0

        async def Describe(self, request, context):
            self.num_asked += 1
            if self.num_asked <= num_lost:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return await super().Describe(request, context)

    async with open_channel(target.address) as channel:
        network = CuttingNetwork(channel, None, 0)
        async with as_target(network) as server:
            yield server.address, network


async def test_a_recording_survives_a_target_lost_repeatedly_while_it_opens():
    async with target_server() as target, cut_network(target.address, [-1] * 8) as (network, cutting):
        async with draft_server(network.address) as draft:
            await check_text(draft, 1.0)
            assert cutting.num_cut == 8
            await all_free(target, draft)


async def test_a_session_survives_a_target_lost_during_describe():
    async with target_server() as target, cutting_network(target, 5) as (address, network):
        async with draft_server(address) as draft:
            await check_text(draft, 1.0)
            assert network.num_asked == 6
            await all_free(target, draft)


async def test_a_session_that_no_target_keeps_fails_after_the_resume_timeout():
    async with target_server() as target, cut_network(target.address, [-1] * 10_000) as (network, cutting):
        async with draft_server(network.address, resume_timeout_s=0.1) as draft:
            error = await refusal(draft, streaming_config(), *audio_requests(recording(1.0)))
            await eventually(lambda: draft.service.num_sessions == 0)
    assert type(error) is TargetUnavailable
    assert cutting.num_cut > 1
