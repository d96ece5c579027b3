"""The fault of each kind, applied to a world."""

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
LOST, LATE, REPEATED = 0.02, 0.05, 0.3  # shares of blocks; a lost block that the target waits for costs 5 s


async def kill_at(world: World) -> None:
    """Record when the target's failpoint kills it."""
    await world.target.ended()
    world.fault_began_s = world.target.ended_s


async def kill(world: World) -> None:
    """Kill the target."""
    world.mark_fault()
    await world.target.kill()


async def kill_twice(world: World) -> None:
    """Kill the target, replace it, then kill the spare."""
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
    world.mark_fault()
    server.signal(signal.SIGSTOP)
    await asyncio.sleep(world.scenario.lasts_s)
    server.signal(signal.SIGCONT)


async def stop_long(world: World) -> None:
    """Stop the target until its sessions have left, then continue it with its unsent messages."""
    world.mark_fault()
    world.target.signal(signal.SIGSTOP)
    while not any(client.log.progress_s[-1:] > [world.fault_began_s + 1] for client in world.clients):
        await asyncio.sleep(0.01)
    world.target.signal(signal.SIGCONT)


async def stop_draft_long(world: World) -> None:
    """Stop the draft server until its clients have ended, then continue it."""
    world.mark_fault()
    world.draft.signal(signal.SIGSTOP)
    try:
        await asyncio.Event().wait()
    finally:
        world.draft.signal(signal.SIGCONT)


async def half_open(world: World) -> None:
    """Freeze the target's network for good, in both directions."""
    world.mark_fault()
    world.victim.freeze()


async def half_open_draft(world: World) -> None:
    """Freeze the draft server's network for good, in both directions."""
    world.mark_fault()
    world.draft_proxy.freeze()


async def frozen(world: World) -> None:
    """Freeze the target's network for a while."""
    world.mark_fault()
    world.victim.freeze()
    await asyncio.sleep(world.scenario.lasts_s)
    world.victim.unfreeze()


async def garbled(world: World) -> None:
    """Send invalid HTTP/2 on every connection to the target."""
    world.mark_fault()
    world.victim.garble()


async def cut(world: World) -> None:
    """Reset all connections to targets and refuse new ones, for a while."""
    await _cut(world, world.target_proxies)


async def cut_draft(world: World) -> None:
    """Reset all connections to the draft server and refuse new ones, for a while."""
    await _cut(world, world.draft_proxies)


async def _cut(world: World, proxies: Sequence[Proxy]) -> None:
    world.mark_fault()
    upstreams = [proxy.upstream for proxy in proxies]
    for proxy in proxies:
        proxy.upstream = None
        proxy.reset()
    await asyncio.sleep(world.scenario.lasts_s)
    for proxy, address in zip(proxies, upstreams, strict=True):
        proxy.upstream = address


async def reset(world: World) -> None:
    """Reset the connections to the targets several times."""
    world.mark_fault()
    for proxy in (world.victim, world.spare, world.victim):
        proxy.reset()
        await asyncio.sleep(0.3)


async def reset_draft(world: World) -> None:
    """Reset the connections to the draft servers several times."""
    world.mark_fault()
    for draft_proxy in (*world.draft_proxies, world.draft_proxy):
        draft_proxy.reset()
        await asyncio.sleep(0.3)


async def limit(world: World) -> None:
    """Reset the connection to the target after so many bytes."""
    num_before = world.victim.num_reset
    world.victim.bytes_left = world.scenario.num_bytes
    while world.victim.num_reset == num_before:
        await asyncio.sleep(0.002)
    world.mark_fault()


async def slow(world: World) -> None:
    """Add latency and limit bandwidth to all targets."""
    world.mark_fault()
    for proxy in world.target_proxies:
        proxy.latency_ms, proxy.jitter_ms = SLOW_MS, SLOW_JITTER_MS
        proxy.bytes_per_s = SLOW_BYTES_PER_S


async def messages(world: World) -> None:
    """Lose, repeat and reorder candidates of every session that opens after a reset."""
    await world.edit_candidates(lambda: edits(Random(world.scenario.seed)))
    world.spare.upstream = None
    world.mark_fault()
    world.victim.reset()
    world.spare.reset()


def edits(random: Random) -> EditBlock:
    """Return an edit that loses, repeats and reorders the blocks of one session."""
    late: list[Candidates] = []

    def edit(block: Candidates) -> Sequence[Candidates]:
        roll = random.random()
        if roll < LOST:
            return ()
        if roll < LOST + LATE:
            late.append(block)
            return ()
        delayed = [*late]
        late.clear()
        return (block, *delayed, *([block] if roll < LOST + LATE + REPEATED else []))

    return edit


async def drain(world: World) -> None:
    """Drain the target; its sessions migrate."""
    await _drain(world, world.target)


async def drain_draft(world: World) -> None:
    """Drain the draft server."""
    await _drain(world, world.draft)


async def _drain(world: World, server: ForkedServer) -> None:
    world.mark_fault()
    server.signal(signal.SIGTERM)
    async with _recorded_exit(world, server):
        await server.ended()


@asynccontextmanager
async def _recorded_exit(world: World, server: ForkedServer) -> AsyncIterator[None]:
    """Record the exit status of a draining server, even if its clients end a moment earlier."""
    try:
        yield
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(FREE_WITHIN_S):
                await server.ended()
        world.exit_statuses.append(server.exit_status)


async def drain_again(world: World) -> None:
    """Drain the target, and repeat the signals while it drains."""
    world.mark_fault()
    ending = asyncio.create_task(world.target.ended())
    async with _recorded_exit(world, world.target):
        while not ending.done():
            world.target.signal(signal.SIGTERM)
            world.target.signal(signal.SIGINT)
            await asyncio.wait((ending,), timeout=AGAIN_S)


async def drain_expired(world: World) -> None:
    """Drain the target without a spare, so that its drain timeout ends the sessions."""
    spare, world.spare.upstream = world.spare.upstream, None
    world.spare.reset()
    await drain(world)
    world.spare.upstream = spare


async def redeploy(world: World) -> None:
    """Replace each target in turn: start a new one, then drain the old one."""
    world.mark_fault()
    spare_proxy = world.target_proxies[-1]
    for proxy in world.target_proxies[:-1]:
        old = world.targets[proxy]
        await world.start_target(spare_proxy)
        old.signal(signal.SIGTERM)
        async with _recorded_exit(world, old):
            await old.ended()
        proxy.upstream, spare_proxy = None, proxy


async def kill_draft(world: World) -> None:
    """Kill the draft server and start another one."""
    world.mark_fault()
    await world.draft.kill()
    await world.start_draft(world.draft_proxy)


async def kill_draft_at(world: World) -> None:
    """Start another draft server after the failpoint kills the first."""
    await world.draft.ended()
    world.fault_began_s = world.draft.ended_s
    await world.start_draft(world.draft_proxy)


async def hang_draft(world: World) -> None:
    """Replace a draft server with a hung engine once its health fails, as Kubernetes does."""
    draft = world.draft
    try:
        while not (await draft.probe("hanging"))["hanging"]:
            await asyncio.sleep(0.01)
        world.mark_fault()
        async with open_channel(draft.address) as channel:
            while await HealthStub(channel).Check(HealthCheckRequest()) == SERVING:
                await asyncio.sleep(AGAIN_S)
    finally:
        await draft.kill()
    await world.start_draft(world.draft_proxy)


FAULTS: dict[Kind, Fault] = {
    Kind.KILL_AT: kill_at,
    Kind.KILL: kill,
    Kind.KILL_TWICE: kill_twice,
    Kind.STOP: stop,
    Kind.STOP_LONG: stop_long,
    Kind.HALF_OPEN: half_open,
    Kind.FROZEN: frozen,
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
