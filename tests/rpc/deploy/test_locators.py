"""A locator may hang, and the targets that it names may change."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from experiments.common.models.scripted import ScriptedModel, scripted_checkpoint
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server.link.link import TargetLink
from specwhisper_draft_server.transcriber import Requirements
from tests.rpc.services import (
    Draft,
    HalfSent,
    Target,
    as_target,
    check_text,
    draft_server,
    eventually,
    target_server,
)

HANGING_S = 120.0  # longer than any test
pytestmark = pytest.mark.usefixtures("fast_retries")


class Locator(verification_pb2_grpc.VerificationServicer):
    """Names a target, or hangs."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.described: Target | None = None  # if another than the named one
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def Locate(self, request, context):
        await self.may_answer.wait()
        place = await self.target.stub.Locate(request)
        return pb.LocateResponse(address=self.target.address, free_slots=place.free_slots)

    async def Describe(self, request, context):
        await self.may_answer.wait()
        return await (self.described or self.target).stub.Describe(request)


@asynccontextmanager
async def locator_of(target: Target) -> AsyncIterator[tuple[str, Locator, Draft]]:
    """Yield a locator, its address, and a draft server that knows only the locator."""
    locator = Locator(target)
    async with (
        as_target(locator) as server,
        draft_server(server.address, connect_timeout_s=HANGING_S) as draft,
    ):
        yield server.address, locator, draft


async def test_a_locator_that_never_answers_does_not_hold_up_sessions():
    async with target_server() as target, locator_of(target) as (_, locator, draft):
        await check_text(draft)
        locator.may_answer.clear()
        async with asyncio.timeout(HANGING_S / 2):
            await check_text(draft)


def connected(draft: Draft) -> set[str]:
    return set(draft.service._transcriber._connections)


async def test_connections_to_lost_targets_are_closed():
    async with target_server() as first, locator_of(first) as (address, locator, draft):
        client = HalfSent(draft)
        await client.begin()
        assert connected(draft) == {address, first.address}
        async with target_server() as second:
            locator.target = second
            await first.server.stop(drain_timeout_s=0)
            await client.end()
            await eventually(lambda: connected(draft) == {address, second.address})


async def test_a_locator_leads_to_a_matching_target_while_a_named_one_is_lost(unused_tcp_port):
    """The locator describes one target, and knows others."""
    checkpoint = replace(scripted_checkpoint(), weights_digest="old")
    async with (
        target_server(ScriptedModel(8), checkpoint) as old,
        target_server() as new,
        locator_of(old) as opened,
    ):
        address, locator, _ = opened
        locator.described = new
        link = TargetLink(address, f"127.0.0.1:{unused_tcp_port}", connect_timeout_s=0.05)
        try:
            assert (await link.describe(Requirements(weights_digest="old"))).weights_digest == "old"
        finally:
            await link.close()
