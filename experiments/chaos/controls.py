"""Negative controls: what is broken on purpose must be found, and by the violation that it is."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.chaos.asked import Recorded, Spoken
from experiments.chaos.clients import violations
from experiments.chaos.runs import Outcome, broken_servers, run
from experiments.chaos.scenarios import Kind, Scenario
from experiments.chaos.spoiling import OF_LIVE, OF_RECORDING
from experiments.chaos.summary import MAX_RESUME_S, RESUMES, bars
from experiments.chaos.world import SPARE, World
from experiments.common.models.speech import talk
from experiments.common.oracle import Violation, Wrong
from specwhisper.types import Mode
from specwhisper_client.streaming import StreamingClient

RECORDED = Recorded("translated", Mode.FULL, None, length_s=200.0, audio_seed=0, begins_s=0.0)
SPOKEN = Spoken(Mode.FULL, 2_000, has_utterances=True, continue_unverified=False, begins_s=0.0)
KILLED = Scenario(0, Kind.KILL, (RECORDED, SPOKEN), delay_s=0.1)
LATE_S = MAX_RESUME_S + 0.5
PATIENCE_S = 2.5  # with a session that hangs
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Control:
    """What was broken on purpose.

    Attributes
    ----------
    expected : the violation by which it must be found.
    found : the kinds of violations that were found.
    says : one of each kind, in full.
    """

    name: str
    expected: str
    found: tuple[str, ...]
    says: str = ""

    @property
    def has_tripped(self) -> bool:
        """Whether it was found, by the violation that it is."""
        return self.expected in self.found

    def __str__(self) -> str:
        if self.has_tripped:
            return f"{self.name}: {self.expected}"
        return f"{self.name}: tripped by {' and '.join(self.found)} instead of {self.expected}: {self.says}"


async def run_controls(folder: Path) -> list[Control]:
    """Break every promise once."""
    # Other weights may also have a session fail; one of two goes on to say something else.
    both = replace(KILLED, clients=(RECORDED, replace(RECORDED, audio_seed=1), SPOKEN))
    other = await run(both, folder, spare=replace(SPARE, seed=1))
    impatient = await run(KILLED, folder, resume_timeout_s=0.0)
    return [
        *await spoilt_logs(folder),
        _of_run("a spare of other weights behind the same digest", Wrong.DIFFERENT, other),
        _of_run("no patience for another target", Wrong.FAILED, impatient),
        await _late_spare(folder),
        await _kept_slot(folder),
        await _hanging(folder),
        await _bad_exit(folder),
    ]


async def spoilt_logs(folder: Path) -> list[Control]:
    """Spoil the logs of sessions that nothing has happened to."""
    calm = Scenario(0, Kind.KILL, (RECORDED, SPOKEN))
    async with World(calm, folder) as world:
        await world.run(_nothing)
    found = []
    for asked, client in zip(calm.clients, world.clients, strict=True):
        is_recording = isinstance(asked, Recorded)
        kind = "recording" if is_recording else "live audio"
        found.append(_control(f"{kind}, nothing spoilt", NOTHING, violations(asked, client.log)))
        for spoil, expected in (OF_RECORDING if is_recording else OF_LIVE).items():
            wrong = violations(asked, spoil(client.log))
            found.append(_control(f"{kind}, log {spoil.__name__}", expected, wrong))
    return found


async def _late_spare(folder: Path) -> Control:
    """Let the spare be there only when it takes too long."""
    outcome = await run(KILLED, folder, fault=_kill_long_before_the_spare)
    short = [bar for bar in bars([outcome]) if not bar.holds]
    found = tuple(bar.name for bar in short) or (NOTHING,)
    return Control("a spare that comes too late", RESUMES, found, "; ".join(map(str, short)))


async def _kept_slot(folder: Path) -> Control:
    """Count slots while somebody has one."""
    async with World(KILLED, folder) as world, StreamingClient(world.draft.address) as stream:
        await stream.send(talk())
        async for _ in stream:
            break
        return _control("a session that stays", Wrong.KEPT_SLOTS, await broken_servers(world, within_s=0.0))


async def _hanging(folder: Path) -> Control:
    """Stop the draft server: its clients are asked how far they are before they notice that."""
    async with World(KILLED, folder, client_timeout_s=PATIENCE_S) as world:
        await world.run(_stop_the_draft)
        found = [wrong for client in world.clients for wrong in client.violations()]
    return _control("sessions that hang", Wrong.HUNG, found)


async def _bad_exit(folder: Path) -> Control:
    """Kill a target that was told to stop in order, before it has."""
    async with World(KILLED, folder) as world:
        await world.run(_kill_while_it_drains)
        return _control("a server that ends badly", Wrong.BAD_EXIT, await broken_servers(world))


async def _nothing(world: World) -> None:
    """Leave the world as it is."""


async def _kill_long_before_the_spare(world: World) -> None:
    address, world.spare.leads_to = world.spare.leads_to, None
    world.spare.reset()
    world.strike()
    await world.target.kill()
    await asyncio.sleep(LATE_S)
    world.spare.leads_to = address


async def _stop_the_draft(world: World) -> None:
    world.strike()
    world.draft.signal(signal.SIGSTOP)


async def _kill_while_it_drains(world: World) -> None:
    world.strike()
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):  # stopped, it cannot be the faster one
        world.target.signal(number)
    await world.target.ended()
    world.exit_statuses.append(world.target.exit_status)


def _of_run(name: str, expected: Wrong, outcome: Outcome) -> Control:
    found = [*outcome.violations, *(wrong for one in outcome.heard for wrong in one.violations)]
    return _control(name, expected, found)


def _control(name: str, expected: str, found: Iterable[Violation]) -> Control:
    of_kinds: dict[str, str] = {}
    for wrong in found:
        of_kinds.setdefault(str(wrong.kind), str(wrong))
    return Control(name, str(expected), tuple(of_kinds) or (NOTHING,), "; ".join(of_kinds.values()))
