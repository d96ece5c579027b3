"""A session outlives targets that are lost while they open it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import grpc
import grpc.aio
import pytest

from specwhisper.errors import TargetUnavailable
from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire.v1 import verification_pb2_grpc
from tests.rpc.bad_network import BadNetwork
from tests.rpc.network import cut_network
from tests.rpc.services import (
    Target,
    all_free,
    audio_requests,
    draft_server,
    error_of,
    eventually,
    expected_finals,
    finals,
    recording,
    stream,
    streaming_config,
    target_alone,
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
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, network)
        server = await start_server({"specwhisper.wire.v1.Verification": add}, ServingOptions())
        try:
            yield server.address, network
        finally:
            await server.stop(drain_timeout_s=0)


async def test_a_recording_survives_a_target_lost_repeatedly_while_it_opens():
    async with target_server() as target, cut_network(target.address, [-1] * 8) as (network, cutting):
        async with draft_server(network.address) as draft:
            assert finals(await stream(draft, recording(1.0))) == expected_finals(target_alone(1.0))
            assert cutting.num_cut == 8
            await all_free(target, draft)


async def test_a_session_survives_a_target_lost_during_describe():
    async with target_server() as target, cutting_network(target, 5) as (address, network):
        async with draft_server(address) as draft:
            assert finals(await stream(draft, recording(1.0))) == expected_finals(target_alone(1.0))
            assert network.num_asked == 6
            await all_free(target, draft)


async def test_a_session_that_no_target_keeps_fails_after_the_resume_timeout():
    async with target_server() as target, cut_network(target.address, [-1] * 10_000) as (network, cutting):
        async with draft_server(network.address, resume_timeout_s=0.1) as draft:
            requests = iter([streaming_config(), *audio_requests(recording(1.0))])
            error = await error_of(with_true_status(draft.stub.StreamingRecognize(requests)))
            await eventually(lambda: draft.service.num_sessions == 0)
    assert type(error) is TargetUnavailable
    assert cutting.num_cut > 1
