"""Negative controls: what breaks a promise on purpose must be found, each by the detector it is meant for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from client.streaming import StreamingClient
from experiments.chaos.asked import Recorded, Spoken
from experiments.chaos.clients import violations
from experiments.chaos.controls import SPOILT
from experiments.chaos.oracle import pause_s
from experiments.chaos.runs import Outcome, run
from experiments.chaos.scenarios import Kind, Scenario
from experiments.chaos.summary import MAX_RESUME_S
from experiments.chaos.world import SPARE, World
from experiments.common.speaking import talk
from specwhisper.types import Mode

RECORDED = Recorded("translated", Mode.FULL, None, length_s=200.0, audio_seed=0, begins_s=0.0)
SPOKEN = Spoken(Mode.FULL, 2_000, has_utterances=True, continue_unverified=False, begins_s=0.0)
KILLED = Scenario(0, Kind.KILL, (RECORDED, SPOKEN), delay_s=0.1)
LATE_S = MAX_RESUME_S + 0.5


@dataclass(frozen=True, slots=True)
class Control:
    """What was broken on purpose, and what was found of it."""

    name: str
    has_tripped: bool
    found: str


async def controls(folder: Path) -> list[Control]:
    """Break every promise once."""
    other = await run(KILLED, folder, spare=replace(SPARE, seed=1))
    impatient = await run(KILLED, folder, resume_timeout_s=0.0)
    return [
        *await spoilt_logs(folder),
        _control("a spare of other weights behind the same digest", other, "different"),
        _control("no patience for another target", impatient, "failed"),
        await _late_spare(folder),
        await _kept_slot(folder),
    ]


async def spoilt_logs(folder: Path) -> list[Control]:
    """Spoil the logs of sessions that nothing has happened to."""
    calm = Scenario(0, Kind.KILL, (RECORDED, SPOKEN))
    async with World(calm, folder) as world:
        await world.run(_nothing)
    found = []
    for asked, client in zip(calm.clients, world.clients, strict=True):
        kind = "recording" if isinstance(asked, Recorded) else "live audio"
        as_it_is = violations(asked, client.log)
        found.append(Control(f"{kind}, nothing spoilt, nothing found", not as_it_is, "; ".join(as_it_is)))
        for name, spoil in SPOILT.items():
            wrong = violations(asked, spoil(client.log))
            found.append(Control(f"{kind}, log {name}", bool(wrong), "; ".join(wrong)))
    return found


async def _late_spare(folder: Path) -> Control:
    """Let the spare be there only when it takes too long."""
    async with World(KILLED, folder) as world:
        await world.run(_kill_long_before_the_spare)
        since_s = world.struck_s or 0.0
        pauses_s = [pause for client in world.clients if (pause := pause_s(client.log, since_s)) is not None]
    longest_s = max(pauses_s, default=0.0)
    return Control(
        "a spare that comes too late", longest_s > MAX_RESUME_S, f"resumed after {longest_s:.1f} s"
    )


async def _kept_slot(folder: Path) -> Control:
    """Count slots while somebody has one."""
    async with World(KILLED, folder) as world, StreamingClient(world.draft.address) as stream:
        await stream.send(talk())
        async for _ in stream:
            break
        num_taken = await world.num_taken(within_s=0.0)
    return Control("a session that stays", num_taken > 0, f"{num_taken} slots were not given back")


async def _nothing(world: World) -> None:
    """Leave the world as it is."""


async def _kill_long_before_the_spare(world: World) -> None:
    address, world.spare.leads_to = world.spare.leads_to, None
    world.spare.reset()
    world.strike()
    await world.target.kill()
    await asyncio.sleep(LATE_S)
    world.spare.leads_to = address


def _control(name: str, outcome: Outcome, word: str) -> Control:
    found = [line for line in outcome.all_violations if word in line]
    return Control(name, bool(found), "; ".join(found))
