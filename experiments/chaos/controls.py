"""Negative controls: each deliberate error must be found, as its own kind of violation."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.chaos.clients import violations
from experiments.chaos.corrupted_logs import OF_LIVE, OF_RECORDING
from experiments.chaos.requests import FileRequest, LiveRequest
from experiments.chaos.runs import Outcome, run, server_violations
from experiments.chaos.scenarios import Kind, Scenario
from experiments.chaos.summary import MAX_RESUME_S, RESUMES, bars
from experiments.chaos.world import SPARE, World
from experiments.common.models.speech import talk
from experiments.common.oracle import Violation, ViolationKind
from specwhisper.types import Mode
from specwhisper_client.streaming import StreamingClient

RECORDED = FileRequest("translated", Mode.FULL, None, length_s=600.0, audio_seed=0, start_after_s=0.0)
SPOKEN = LiveRequest(Mode.FULL, has_utterances=True, continue_unverified=False, start_after_s=0.0)
KILLED = Scenario(0, Kind.KILL, (RECORDED, SPOKEN), delay_s=0.1)
LATE_S = MAX_RESUME_S + 0.5
HANG_TIMEOUT_S = 2.5  # until a session counts as hung
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Control:
    """A deliberate error and the violations found.

    Attributes
    ----------
    expected : the kind of violation that must be found.
    found : kinds of violations found.
    message : the first violation of each kind.
    """

    name: str
    expected: str
    found: tuple[str, ...]
    message: str = ""

    @property
    def has_tripped(self) -> bool:
        """Whether the expected kind was found."""
        return self.expected in self.found

    def __str__(self) -> str:
        if self.has_tripped:
            return f"{self.name}: {self.expected}"
        tripped_by = " and ".join(self.found)
        return f"{self.name}: tripped by {tripped_by} instead of {self.expected}: {self.message}"


async def run_controls(folder: Path) -> list[Control]:
    """Make every deliberate error once."""
    # Within a window the other weights write another text; a complete one they continue, which is an error.
    # Some of the expected text is lost in either case.
    other = await run(KILLED, folder, spare=replace(SPARE, seed=1))
    no_retry = await run(KILLED, folder, resume_timeout_s=0.0)
    return [
        *await corrupted_logs(folder),
        _of_run("a spare with other weights under the same digest", ViolationKind.LOST, other),
        _of_run("no retry at another target", ViolationKind.FAILED, no_retry),
        await _late_spare(folder),
        await _kept_slot(folder),
        await _hanging(folder),
        await _bad_exit(folder),
    ]


async def corrupted_logs(folder: Path) -> list[Control]:
    """Corrupt the logs of sessions that nothing has happened to."""
    calm = Scenario(0, Kind.KILL, (RECORDED, SPOKEN))
    async with World(calm, folder) as world:
        await world.run(_nothing)
    found = []
    for request, client in zip(calm.clients, world.clients, strict=True):
        is_recording = isinstance(request, FileRequest)
        kind = "recording" if is_recording else "live audio"
        found.append(_control(f"{kind}, log unchanged", NOTHING, violations(request, client.log)))
        for corrupt, expected in (OF_RECORDING if is_recording else OF_LIVE).items():
            wrong = violations(request, corrupt(client.log))
            found.append(_control(f"{kind}, log {corrupt.__name__}", expected, wrong))
    return found


async def _late_spare(folder: Path) -> Control:
    """Make the spare available only after the limit."""
    outcome = await run(KILLED, folder, fault=_kill_long_before_the_spare)
    short = [bar for bar in bars([outcome]) if not bar.holds]
    found = tuple(bar.name for bar in short) or (NOTHING,)
    return Control("a spare available too late", RESUMES, found, "; ".join(map(str, short)))


async def _kept_slot(folder: Path) -> Control:
    """Count slots while a session holds one."""
    async with World(KILLED, folder) as world, StreamingClient(world.draft.address) as stream:
        await stream.send(talk())
        async for _ in stream:
            break
        return _control(
            "a session that stays open",
            ViolationKind.LEAKED_SLOTS,
            await server_violations(world, within_s=0.0),
        )


async def _hanging(folder: Path) -> Control:
    """Stop the draft server, and check its clients before they notice."""
    async with World(KILLED, folder, client_timeout_s=HANG_TIMEOUT_S) as world:
        await world.run(_stop_the_draft)
        found = [wrong for client in world.clients for wrong in client.violations()]
    return _control("hung sessions", ViolationKind.HUNG, found)


async def _bad_exit(folder: Path) -> Control:
    """Kill a target while it drains."""
    async with World(KILLED, folder) as world:
        await world.run(_kill_while_it_drains)
        return _control(
            "a server that exits with an error", ViolationKind.BAD_EXIT, await server_violations(world)
        )


async def _nothing(world: World) -> None:
    """Cause no fault."""


async def _kill_long_before_the_spare(world: World) -> None:
    address, world.spare.upstream = world.spare.upstream, None
    world.spare.reset()
    world.mark_fault()
    await world.target.kill()
    await asyncio.sleep(LATE_S)
    world.spare.upstream = address


async def _stop_the_draft(world: World) -> None:
    world.mark_fault()
    world.draft.signal(signal.SIGSTOP)


async def _kill_while_it_drains(world: World) -> None:
    world.mark_fault()
    for number in (
        signal.SIGSTOP,
        signal.SIGTERM,
        signal.SIGKILL,
    ):  # SIGSTOP first, so that it cannot exit in between
        world.target.signal(number)
    await world.target.ended()
    world.exit_statuses.append(world.target.exit_status)


def _of_run(name: str, expected: ViolationKind, outcome: Outcome) -> Control:
    found = [*outcome.violations, *(wrong for one in outcome.clients for wrong in one.violations)]
    return _control(name, expected, found)


def _control(name: str, expected: str, found: Iterable[Violation]) -> Control:
    of_kinds: dict[str, str] = {}
    for wrong in found:
        of_kinds.setdefault(str(wrong.kind), str(wrong))
    return Control(name, str(expected), tuple(of_kinds) or (NOTHING,), "; ".join(of_kinds.values()))
