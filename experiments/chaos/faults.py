"""How each kind of fault is done to a world; those of other servers are added here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from experiments.chaos.scenarios import Kind
from experiments.chaos.world import FREE_WITHIN_S, World
from experiments.common.network.bad_network import EditBlock
from experiments.common.network.proxy import Proxy
from experiments.common.servers.forked import ForkedServer
from specwhisper.rpc.channels import open_channel
from specwhisper.types import Candidates

Fault = Callable[[World], Awaitable[None]]

AGAIN_S = 0.1
SERVING = HealthCheckResponse(status=HealthCheckResponse.SERVING)
SLOW_MS, SLOW_JITTER_MS, SLOW_BYTES_PER_S = 75.0, 50.0, 4_000_000.0
LOST, LATE, REPEATED = 0.02, 0.05, 0.3  # of candidate blocks; what a target waits for in vain costs 5 s


async def kill_at(world: World) -> None:
    """Note when the target has killed itself."""
    await world.target.ended()
    world.struck_s = world.target.ended_s


async def kill(world: World) -> None:
    """Kill the target."""
    world.strike()
    await world.target.kill()


async def kill_twice(world: World) -> None:
    """Kill the target, put another one in its place, and kill the spare."""
    await kill(world)
    await world.start_target(world.victim)
    await asyncio.sleep(world.scenario.delay_s)
    await world.targets[world.spare].kill()


async def stop(world: World) -> None:
    """Stop the target for a while."""
    await _stop_for_a_while(world, world.target)


async def stop_draft(world: World) -> None:
    """Stop the draft server for a while."""
    await _stop_for_a_while(world, world.draft)


async def _stop_for_a_while(world: World, server: ForkedServer) -> None:
    world.strike()
    server.signal(signal.SIGSTOP)
    await asyncio.sleep(world.scenario.lasts_s)
    server.signal(signal.SIGCONT)


async def stop_long(world: World) -> None:
    """Stop the target for so long that its sessions leave, and then let it say what it was about to."""
    world.strike()
    world.target.signal(signal.SIGSTOP)
    while not any(client.log.progress_s[-1:] > [world.struck_s + 1] for client in world.clients):
        await asyncio.sleep(0.01)
    world.target.signal(signal.SIGCONT)


async def stop_draft_long(world: World) -> None:
    """Stop the draft server until its clients are done, and then let it say what it was about to."""
    world.strike()
    world.draft.signal(signal.SIGSTOP)
    try:
        await asyncio.Event().wait()
    finally:
        world.draft.signal(signal.SIGCONT)


async def half_open(world: World) -> None:
    """Let nothing through to the target or from it, for ever."""
    world.strike()
    world.victim.hold()


async def half_open_draft(world: World) -> None:
    """Let nothing through to the draft server or from it, for ever."""
    world.strike()
    world.front.hold()


async def held(world: World) -> None:
    """Let nothing through for a while."""
    world.strike()
    world.victim.hold()
    await asyncio.sleep(world.scenario.lasts_s)
    world.victim.release()


async def garbled(world: World) -> None:
    """Have every connection to the target break in what it sends."""
    world.strike()
    world.victim.garble()


async def cut(world: World) -> None:
    """Reset all connections to targets and refuse new ones, for a while."""
    await _cut(world, world.places)


async def cut_draft(world: World) -> None:
    """Reset all connections to the draft server and refuse new ones, for a while."""
    await _cut(world, world.fronts)


async def _cut(world: World, ways: Sequence[Proxy]) -> None:
    world.strike()
    led_to = [way.leads_to for way in ways]
    for way in ways:
        way.leads_to = None
        way.reset()
    await asyncio.sleep(world.scenario.lasts_s)
    for way, address in zip(ways, led_to, strict=True):
        way.leads_to = address


async def reset(world: World) -> None:
    """Reset the connection to the target, time and again."""
    world.strike()
    for place in (world.victim, world.spare, world.victim):
        place.reset()
        await asyncio.sleep(0.3)


async def reset_draft(world: World) -> None:
    """Reset the connections to the draft servers, time and again."""
    world.strike()
    for front in (*world.fronts, world.front):
        front.reset()
        await asyncio.sleep(0.3)


async def limit(world: World) -> None:
    """Reset the connection to the target behind so many bytes."""
    num_before = world.victim.num_reset
    world.victim.bytes_left = world.scenario.num_bytes
    while world.victim.num_reset == num_before:
        await asyncio.sleep(0.002)
    world.strike()


async def slow(world: World) -> None:
    """Make the way to all targets long and narrow."""
    world.strike()
    for place in world.places:
        place.latency_ms, place.jitter_ms = SLOW_MS, SLOW_JITTER_MS
        place.bytes_per_s = SLOW_BYTES_PER_S


async def messages(world: World) -> None:
    """Spoil candidates from here on: for whoever opens another session, as all do behind a reset."""
    await world.edit_candidates(lambda: edits(Random(world.scenario.seed)))
    world.spare.leads_to = None
    world.strike()
    world.victim.reset()
    world.spare.reset()


def edits(random: Random) -> EditBlock:
    """Lose, repeat and reorder the blocks of one session."""
    late: list[Candidates] = []

    def edit(block: Candidates) -> Sequence[Candidates]:
        roll = random.random()
        if roll < LOST:
            return ()
        if roll < LOST + LATE:
            late.append(block)
            return ()
        behind = [*late]
        late.clear()
        return (block, *behind, *([block] if roll < LOST + LATE + REPEATED else []))

    return edit


async def drain(world: World) -> None:
    """Have the target stop in order; its sessions leave it."""
    await _drain(world, world.target)


async def drain_draft(world: World) -> None:
    """Have the draft server stop in order."""
    await _drain(world, world.draft)


async def _drain(world: World, server: ForkedServer) -> None:
    world.strike()
    server.signal(signal.SIGTERM)
    async with _ends_well(world, server):
        await server.ended()


@asynccontextmanager
async def _ends_well(world: World, server: ForkedServer) -> AsyncIterator[None]:
    """Note how a server ends that was told to, also where its clients are done a moment before it is."""
    try:
        yield
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(FREE_WITHIN_S):
                await server.ended()
        world.exit_statuses.append(server.exit_status)


async def drain_again(world: World) -> None:
    """Have the target stop in order, and say so again while it does."""
    world.strike()
    ending = asyncio.create_task(world.target.ended())
    async with _ends_well(world, world.target):
        while not ending.done():
            world.target.signal(signal.SIGTERM)
            world.target.signal(signal.SIGINT)
            await asyncio.wait((ending,), timeout=AGAIN_S)


async def drain_expired(world: World) -> None:
    """Have the target stop in order while there is no other, so that it cuts its sessions off."""
    spare, world.spare.leads_to = world.spare.leads_to, None
    world.spare.reset()
    await drain(world)
    world.spare.leads_to = spare


async def redeploy(world: World) -> None:
    """Replace one target after the other: start a new one, then have the old one stop in order."""
    world.strike()
    spare_place = world.places[-1]
    for place in world.places[:-1]:
        old = world.targets[place]
        await world.start_target(spare_place)
        old.signal(signal.SIGTERM)
        async with _ends_well(world, old):
            await old.ended()
        place.leads_to, spare_place = None, place


async def kill_draft(world: World) -> None:
    """Kill the draft server and start another one."""
    world.strike()
    await world.draft.kill()
    await world.start_draft(world.front)


async def kill_draft_at(world: World) -> None:
    """Start another draft server when the first has killed itself."""
    await world.draft.ended()
    world.struck_s = world.draft.ended_s
    await world.start_draft(world.front)


async def hang_draft(world: World) -> None:
    """Replace the draft server whose engine hangs once its health says so, as Kubernetes does."""
    draft = world.draft
    try:
        while not (await draft.probe("hanging"))["hanging"]:
            await asyncio.sleep(0.01)
        world.strike()
        async with open_channel(draft.address) as channel:
            while await HealthStub(channel).Check(HealthCheckRequest()) == SERVING:
                await asyncio.sleep(AGAIN_S)
    finally:
        await draft.kill()
    await world.start_draft(world.front)


FAULTS: dict[Kind, Fault] = {
    Kind.KILL_AT: kill_at,
    Kind.KILL: kill,
    Kind.KILL_TWICE: kill_twice,
    Kind.STOP: stop,
    Kind.STOP_LONG: stop_long,
    Kind.HALF_OPEN: half_open,
    Kind.HELD: held,
    Kind.CUT: cut,
    Kind.CUT_LONG: cut,
    Kind.RESET: reset,
    Kind.GARBLED: garbled,
    Kind.LIMIT: limit,
    Kind.SLOW: slow,
    Kind.MESSAGES: messages,
    Kind.DRAIN: drain,
    Kind.DRAIN_AGAIN: drain_again,
    Kind.DRAIN_EXPIRED: drain_expired,
    Kind.DRAIN_SMALL_SPARE: drain,
    Kind.REDEPLOY: redeploy,
    Kind.KILL_DRAFT: kill_draft,
    Kind.KILL_DRAFT_AT: kill_draft_at,
    Kind.STOP_DRAFT: stop_draft,
    Kind.STOP_DRAFT_LONG: stop_draft_long,
    Kind.HALF_OPEN_DRAFT: half_open_draft,
    Kind.CUT_DRAFT: cut_draft,
    Kind.RESET_DRAFT: reset_draft,
    Kind.DRAIN_DRAFT: drain_draft,
    Kind.HANG_DRAFT: hang_draft,
}
