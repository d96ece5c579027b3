"""How each kind of fault is done to a world; those of other servers are added here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from experiments.chaos.scenarios import Kind
from experiments.chaos.world import World
from experiments.common.bad_network import EditBlock
from specwhisper.types import Candidates

Fault = Callable[[World], Awaitable[None]]

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
    world.strike()
    world.target.signal(signal.SIGSTOP)
    await asyncio.sleep(world.scenario.lasts_s)
    world.target.signal(signal.SIGCONT)


async def stop_long(world: World) -> None:
    """Stop the target for so long that its sessions leave, and then let it say what it was about to."""
    world.strike()
    world.target.signal(signal.SIGSTOP)
    while not any(client.log.progress_s[-1:] > [world.struck_s + 1] for client in world.clients):
        await asyncio.sleep(0.01)
    world.target.signal(signal.SIGCONT)


async def half_open(world: World) -> None:
    """Let nothing through to the target or from it, for ever."""
    world.strike()
    world.victim.hold()


async def held(world: World) -> None:
    """Let nothing through for a while."""
    world.strike()
    world.victim.hold()
    await asyncio.sleep(world.scenario.lasts_s)
    world.victim.release()


async def reset(world: World) -> None:
    """Reset the connection to the target, time and again."""
    world.strike()
    for place in (world.victim, world.spare, world.victim):
        place.reset()
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
    world.strike()
    world.target.signal(signal.SIGTERM)
    await world.target.ended()
    world.exit_statuses.append(world.target.exit_status)


async def redeploy(world: World) -> None:
    """Replace one target after the other: start a new one, then have the old one stop in order."""
    world.strike()
    spare_place = world.places[-1]
    for place in world.places[:-1]:
        old = world.targets[place]
        await world.start_target(spare_place)
        old.signal(signal.SIGTERM)
        await old.ended()
        world.exit_statuses.append(old.exit_status)
        place.leads_to, spare_place = None, place


async def kill_draft(world: World) -> None:
    """Kill the draft server and start another one."""
    world.strike()
    await world.draft.kill()
    await world.start_draft()


async def kill_draft_at(world: World) -> None:
    """Start another draft server when the first has killed itself."""
    await world.draft.ended()
    world.struck_s = world.draft.ended_s
    await world.start_draft()


FAULTS: dict[Kind, Fault] = {
    Kind.KILL_AT: kill_at,
    Kind.KILL: kill,
    Kind.KILL_TWICE: kill_twice,
    Kind.STOP: stop,
    Kind.STOP_LONG: stop_long,
    Kind.HALF_OPEN: half_open,
    Kind.HELD: held,
    Kind.RESET: reset,
    Kind.LIMIT: limit,
    Kind.SLOW: slow,
    Kind.MESSAGES: messages,
    Kind.DRAIN: drain,
    Kind.REDEPLOY: redeploy,
    Kind.KILL_DRAFT: kill_draft,
    Kind.KILL_DRAFT_AT: kill_draft_at,
}
