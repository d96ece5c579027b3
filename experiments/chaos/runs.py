"""One run: a world, a fault, and what the oracle says of every client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from experiments.chaos.faults import FAULTS
from experiments.chaos.oracle import Log, pause_s
from experiments.chaos.scenarios import Kind, Scenario
from experiments.chaos.world import SPARE, World
from experiments.common.serve_scripted import TargetSettings

KEEPS_SLOTS = {Kind.HALF_OPEN}  # until the target's own keepalive finds out


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one client.

    Attributes
    ----------
    pause_s : the longest time without a commit, from the fault on; ``None`` where it met nothing.
    """

    asked: str
    log: Log
    violations: tuple[str, ...]
    pause_s: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes
    ----------
    violations : of the servers; those of the clients are theirs.
    """

    scenario: Scenario
    heard: tuple[Heard, ...]
    violations: tuple[str, ...]
    has_struck: bool
    took_s: float

    @property
    def all_violations(self) -> list[str]:
        """Everything that is wrong, and with whom."""
        return [*self.violations, *(f"{one.asked}: {line}" for one in self.heard for line in one.violations)]

    @property
    def pauses_s(self) -> list[float]:
        """Of the sessions that the fault met."""
        return [one.pause_s for one in self.heard if one.pause_s is not None]


async def run(
    scenario: Scenario,
    folder: Path,
    *,
    spare: TargetSettings = SPARE,
    resume_timeout_s: float = 60.0,
) -> Outcome:
    """Run a scenario with processes of its own."""
    began_s = monotonic()
    async with World(scenario, folder, spare=spare, resume_timeout_s=resume_timeout_s) as world:
        await world.run(FAULTS[scenario.kind])
        wrong = [f"a target that was told to stop exited with {s}" for s in world.exit_statuses if s != 0]
        if scenario.kind not in KEEPS_SLOTS and (num_taken := await world.num_taken()):
            wrong.append(f"{num_taken} slots were not given back")
        heard = tuple(
            Heard(
                str(client.asked),
                client.log,
                tuple(client.violations()),
                None if world.struck_s is None else pause_s(client.log, world.struck_s),
            )
            for client in world.clients
        )
        return Outcome(scenario, heard, tuple(wrong), world.struck_s is not None, monotonic() - began_s)
