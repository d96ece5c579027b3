"""Negative controls: each deliberate error must be found, as its own kind of violation."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from experiments.common.bench.report import none
from experiments.common.models.speech import talk
from experiments.faults.chaos import MAX_RESUME_S, Pause, Scenario, World, bars, run, server_violations
from experiments.faults.clients import FileRequest, LiveRequest
from experiments.faults.kinds import KILL
from experiments.faults.oracle import Violation, ViolationKind
from experiments.faults.report import Result
from specwhisper_client.streaming import StreamingClient

KILLED = Scenario(0, KILL, (FileRequest(600.0, option="translated"), LiveRequest()), delay_s=0.1)


async def measure_controls(folder: Path) -> Result:
    # Within a window the other weights write another text; a complete one they continue, which is an error.
    # Some of the expected text is lost in either case.
    other = await run(KILLED, folder, spare_seed=1)
    no_retry = await run(KILLED, folder, resume_timeout_s=0.0)
    found: dict[str, tuple[str, Sequence[Violation]]] = {
        "a spare with other weights under the same digest": (ViolationKind.LOST, other.all_of_sessions),
        "no retry at another target": (ViolationKind.FAILED, no_retry.all_of_sessions),
    }
    async with World(KILLED, folder) as world:
        await world.run(lambda _: asyncio.sleep(0))
    violations = [str(wrong) for client in world.clients for wrong in client.violations()]
    quiet = [f"without a fault: {wrong}" for wrong in violations]

    async with World(KILLED, folder) as world, StreamingClient(world.draft_places[0].address) as stream:
        await stream.send(talk())
        updates = aiter(stream)  # without a reference to it the session would end
        await anext(updates)
        kept = await server_violations(world, within_s=0.0)
    found["a session that stays open"] = ViolationKind.LEAKED_SLOTS, kept

    async with World(KILLED, folder, client_timeout_s=2.5) as world:  # before its clients notice
        await world.run(_stop_the_draft)
    hung = [wrong for client in world.clients for wrong in client.violations()]
    found["hung sessions"] = ViolationKind.HUNG, hung

    async with World(KILLED, folder) as world:
        await world.run(_kill_while_it_drains)
        found["a server that exits with an error"] = ViolationKind.BAD_EXIT, await server_violations(world)

    for name, (expected, violations) in found.items():
        if expected not in {wrong.kind for wrong in violations}:
            quiet.append(f"{name}: no violation is of kind '{expected}': {', '.join(map(str, violations))}")
    name, _ = Pause.FOR_SPARE.value
    late = await run(KILLED, folder, fault=_kill_before_the_spare)
    if name not in {bar.name for bar in bars([late]) if not bar.holds}:
        quiet.append(f"a spare available too late: '{name}' holds")
    bar = none("negative controls that did not trip", len(quiet), len(found) + 2)
    return Result([bar], list(found), [f"control: {line}" for line in quiet])


async def _kill_before_the_spare(world: World) -> None:
    address, world.spare.upstream = world.spare.upstream, None
    world.spare.reset()
    world.mark_fault()
    await world.victim.kill()
    await asyncio.sleep(MAX_RESUME_S + 0.5)
    world.spare.upstream = address


async def _stop_the_draft(world: World) -> None:
    world.drafts[world.draft_places[0]].signal(signal.SIGSTOP)


async def _kill_while_it_drains(world: World) -> None:
    world.victim.signal(signal.SIGSTOP)  # so that it cannot exit in between
    draining = asyncio.create_task(world.drain(world.victim))
    await asyncio.sleep(0)
    world.victim.signal(signal.SIGKILL)
    await draining
