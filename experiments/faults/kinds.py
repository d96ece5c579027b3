"""Every kind of fault, as it is caused; and negative controls: each error must be found as its own kind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from experiments.common.bench.report import none
from experiments.common.models.speech import talk
from experiments.common.servers.forked import ForkedServer
from experiments.faults.chaos import MAX_RESUME_S, Kind, Pause, Scenario, World, bars, run, server_violations
from experiments.faults.clients import FileRequest, LiveRequest
from experiments.faults.oracle import Violation, ViolationKind
from experiments.faults.report import Result
from specwhisper.failpoints import DRAFT_POINTS, TARGET_POINTS, Fault
from specwhisper.rpc.channels import open_channel
from specwhisper_client.streaming import StreamingClient
from specwhisper_target_server.config import DEFAULT_IDLE_S

AGAIN_S = 0.1
SERVING = HealthCheckResponse(status=HealthCheckResponse.SERVING)
SLOW_MS, SLOW_JITTER_MS, SLOW_BYTES_PER_S = 75.0, 50.0, 4_000_000.0
SHORT_DRAIN_S = 0.5  # shorter than sessions


async def kill_at(world: World) -> None:
    victim = world.victim
    await victim.ended()
    world.fault_began_s = victim.ended_s
    await world.replace_draft()


async def kill(world: World) -> None:
    world.mark_fault()
    await world.victim.kill()
    await world.replace_draft()


async def kill_twice(world: World) -> None:
    await kill(world)
    await world.start_target(world.places[0])
    await asyncio.sleep(world.scenario.delay_s)
    await world.targets[world.spare].kill()


@contextmanager
def stopped(server: ForkedServer) -> Iterator[None]:
    """Stop a server, then continue it with its unsent messages."""
    server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


async def stop(world: World) -> None:
    world.mark_fault()
    with stopped(world.victim):
        await asyncio.sleep(world.scenario.lasts_s)


async def stop_until_left(world: World) -> None:
    world.mark_fault()
    with stopped(world.victim):
        while not any(client.log.progress_s[-1:] > [world.fault_began_s + 1] for client in world.clients):
            await asyncio.sleep(0.01)


async def half_open(world: World) -> None:
    """Freeze the network for good, in both directions."""
    world.mark_fault()
    world.places[0].freeze()


async def freeze(world: World) -> None:
    await half_open(world)
    await asyncio.sleep(world.scenario.lasts_s)
    world.places[0].unfreeze()


async def garble(world: World) -> None:
    world.mark_fault()
    world.places[0].garble()


async def cut(world: World) -> None:
    world.mark_fault()
    upstreams = [place.upstream for place in world.places]
    for place in world.places:
        place.upstream = None
        place.reset()
    await asyncio.sleep(world.scenario.lasts_s)
    for place, address in zip(world.places, upstreams, strict=True):
        place.upstream = address


async def reset(world: World) -> None:
    world.mark_fault()
    first, second = world.places[:2]
    for place in (first, second, first):
        place.reset()
        await asyncio.sleep(0.3)


async def limit(world: World) -> None:
    place = world.places[0]
    num_before = place.num_reset
    place.bytes_left = world.scenario.num_bytes
    while place.num_reset == num_before:
        await asyncio.sleep(0.002)
    world.mark_fault()


async def slow(world: World) -> None:
    world.mark_fault()
    for place in world.places:
        place.latency_ms, place.jitter_ms = SLOW_MS, SLOW_JITTER_MS
        place.bytes_per_s = SLOW_BYTES_PER_S


async def drain(world: World) -> None:
    world.mark_fault()
    await world.drain(world.victim)


async def drain_again(world: World) -> None:
    world.mark_fault()
    ending = asyncio.create_task(world.drain(world.victim))
    while not ending.done():
        await asyncio.wait((ending,), timeout=AGAIN_S)
        world.victim.signal(signal.SIGTERM)
        world.victim.signal(signal.SIGINT)


async def drain_expired(world: World) -> None:
    """Drain without a spare, so that the drain timeout ends the sessions."""
    address, world.spare.upstream = world.spare.upstream, None
    world.spare.reset()
    await drain(world)
    world.spare.upstream = address


async def redeploy(world: World) -> None:
    world.mark_fault()
    free = world.places[-1]
    for place in world.places[:-1]:
        old = world.targets[place]
        await world.start_target(free)
        await world.drain(old)
        place.upstream, free = None, place


async def hang(world: World) -> None:
    """Replace a draft server with a hung engine once its health fails, as Kubernetes does."""
    draft = world.victim
    try:
        while not (await draft.probe("hanging"))["hanging"]:
            await asyncio.sleep(0.01)
        world.mark_fault()
        async with open_channel(draft.address) as channel:
            while await HealthStub(channel).Check(HealthCheckRequest()) == SERVING:
                await asyncio.sleep(AGAIN_S)
    finally:
        await draft.kill()
    await world.replace_draft()


SPARE, SILENCE, END = Pause.FOR_SPARE, Pause.FOR_SILENCE, Pause.FOR_END
OF_DRAFT = {"of_draft": True, "pause": Pause.FOR_DRAFT, "resumes_call": True}
OF_ONE_DRAFT = OF_DRAFT | {"has_spare_draft": True}
SILENT_DRAFT = OF_ONE_DRAFT | {"pause": SILENCE, "is_quick": False}
# Those that take long, or are parts of others, are left out of a quick run of two minutes.
KILL = Kind("SIGKILL", kill, SPARE)
KILL_AT = Kind("SIGKILL at a failpoint", kill_at, SPARE, points=TARGET_POINTS)
KILL_DRAFT_AT = Kind(
    "SIGKILL of the draft server at a failpoint",
    kill_at,
    points=DRAFT_POINTS,
    may_restart=True,
    **OF_DRAFT,
)
HANG_DRAFT = Kind(
    "hung draft engine",
    hang,
    SILENCE,
    points=("draft.before",),
    max_hit=400,  # up to the middle of all sessions
    of_draft=True,
    failpoint=Fault.HANG,
    is_quick=False,
)
DRAIN_AGAIN = Kind("SIGTERM, repeated", drain_again, SPARE)
KILL_DRAFT = Kind("SIGKILL of the draft server", kill, **OF_DRAFT)
DRAIN_DRAFT = Kind(
    "SIGTERM of the draft server", drain, drain_timeout_s=SHORT_DRAIN_S, is_quick=False, **OF_ONE_DRAFT
)
KINDS = (
    KILL_AT,
    KILL_DRAFT_AT,
    HANG_DRAFT,
    KILL,
    Kind("SIGKILL of a target, then of its spare", kill_twice, SPARE),
    Kind("SIGSTOP, SIGCONT", stop, END, lasts_s=(10.0,), is_quick=False),
    Kind("SIGSTOP, SIGCONT after its sessions have left", stop_until_left, SILENCE, is_quick=False),
    Kind("half-open network", half_open, SILENCE, unnoticed_s=DEFAULT_IDLE_S, is_quick=False),
    Kind("network silent for a while", freeze, END, lasts_s=(1.0, 5.0), is_quick=False),
    Kind("network to all targets cut off for a while", cut, END, lasts_s=(1.0, 5.0)),
    Kind("network to all targets cut off for half a minute", cut, END, lasts_s=(30.0,), is_quick=False),
    Kind("connections reset", reset, SPARE),
    Kind("invalid HTTP/2 on connections to the target", garble, SPARE),
    Kind("connections reset after some bytes", limit, SPARE),
    Kind("latency, jitter, little bandwidth", slow),
    Kind("SIGTERM", drain, SPARE, is_quick=False),
    DRAIN_AGAIN,
    Kind("SIGTERM, no other target before the drain timeout", drain_expired, drain_timeout_s=SHORT_DRAIN_S),
    Kind("SIGTERM, a spare with slots for some sessions", drain, spare_slots=2),
    Kind("every target replaced", redeploy, SPARE),
    KILL_DRAFT,
    Kind("SIGSTOP, SIGCONT of the draft server", stop, END, of_draft=True, lasts_s=(10.0,), is_quick=False),
    Kind("SIGSTOP, SIGCONT of the draft server after its clients have left", stop_until_left, **SILENT_DRAFT),
    Kind("half-open network to the draft server", half_open, unnoticed_s=DEFAULT_IDLE_S, **SILENT_DRAFT),
    Kind(
        "network to the draft server cut off for a while",
        cut,
        lasts_s=(1.0, 5.0),
        **OF_DRAFT | {"pause": END},
    ),
    Kind("connections to the draft server reset", reset, **OF_ONE_DRAFT),
    DRAIN_DRAFT,
)
Plan = tuple[Kind, str]  # kind and failpoint, if any
EVERY: tuple[Plan, ...] = tuple((kind, point) for kind in KINDS for point in kind.points)
QUICK: tuple[Plan, ...] = tuple(
    (kind, point) for kind, point in EVERY if kind.is_quick and not point.endswith(".after")
)

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
