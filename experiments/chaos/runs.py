"""One run: a world, a fault, and what the oracle says of every client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from experiments.chaos.faults import FAULTS, Fault
from experiments.chaos.scenarios import LOSES_DRAFT, Kind, Scenario
from experiments.chaos.world import FREE_WITHIN_S, World
from experiments.common.oracle import Log, Violation, Wrong, pause_s
from experiments.common.serve_scripted import TargetSettings
from specwhisper_target_server.config import DEFAULT_IDLE_S

# Pings that nobody answers take as long, on either side.
UNNOTICED_S = {Kind.HALF_OPEN: DEFAULT_IDLE_S, Kind.HALF_OPEN_DRAFT: DEFAULT_IDLE_S}


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one client.

    Attributes
    ----------
    pause_s : the longest time without a commit, from the fault on; ``None`` where it met nothing.
    num_restarts : how often it found nobody before it was told anything, and began again.
    num_resumes : how often it went on in another call, or tried to.
    """

    asked: str
    log: Log
    violations: tuple[Violation, ...]
    pause_s: float | None
    num_restarts: int = 0
    num_resumes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes
    ----------
    violations : of the servers; those of the clients are theirs.
    """

    scenario: Scenario
    heard: tuple[Heard, ...]
    violations: tuple[Violation, ...]
    has_struck: bool
    took_s: float

    @property
    def all_violations(self) -> list[str]:
        """Everything that is wrong, and with whom."""
        of_clients = (f"{one.asked}: {wrong}" for one in self.heard for wrong in one.violations)
        return [*map(str, self.violations), *of_clients]

    @property
    def pauses_s(self) -> list[float]:
        """Of the sessions that the fault met: where draft servers are lost, those that went on at one."""
        met = [one for one in self.heard if one.num_resumes or self.scenario.kind not in LOSES_DRAFT]
        return [one.pause_s for one in met if one.pause_s is not None]


async def run(
    scenario: Scenario,
    folder: Path,
    *,
    fault: Fault | None = None,
    spare: TargetSettings | None = None,
    resume_timeout_s: float = 60.0,
) -> Outcome:
    """Run a scenario with processes of its own, and a fault that is not of its kind where one is named."""
    began_s = monotonic()
    async with World(scenario, folder, spare=spare, resume_timeout_s=resume_timeout_s) as world:
        await world.run(fault or FAULTS[scenario.kind])
        wrong = await broken_servers(world, FREE_WITHIN_S + UNNOTICED_S.get(scenario.kind, 0.0))
        heard = tuple(
            Heard(
                str(client.asked),
                client.log,
                tuple(client.violations()),
                None if world.struck_s is None else pause_s(client.log, world.struck_s),
                client.num_restarts,
                client.num_resumes,
            )
            for client in world.clients
        )
        return Outcome(scenario, heard, tuple(wrong), world.struck_s is not None, monotonic() - began_s)


async def broken_servers(world: World, within_s: float = FREE_WITHIN_S) -> list[Violation]:
    """Say what is wrong with servers whose clients have gone."""
    wrong = [
        Violation(Wrong.BAD_EXIT, f"a server that was told to stop exited with {status}")
        for status in world.exit_statuses
        if status != 0
    ]
    if num_taken := await world.num_taken(within_s):
        wrong.append(Violation(Wrong.KEPT_SLOTS, f"{num_taken} slots were not given back"))
    return wrong
