"""One run: a world, a fault, and the violations found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from experiments.chaos.faults import FAULTS, Fault
from experiments.chaos.scenarios import LOSES_DRAFT, Kind, Scenario
from experiments.chaos.world import FREE_WITHIN_S, World
from experiments.common.oracle import ClientLog, Violation, ViolationKind, longest_pause_s
from experiments.common.serve_scripted import TargetSettings
from specwhisper_target_server.config import DEFAULT_IDLE_S

# Additional time to free slots: HTTP/2 pings without a reply time out on either side.
UNNOTICED_S = {Kind.HALF_OPEN: DEFAULT_IDLE_S, Kind.HALF_OPEN_DRAFT: DEFAULT_IDLE_S}


@dataclass(frozen=True, slots=True)
class ClientOutcome:
    """The outcome of one client.

    Attributes
    ----------
    pause_s : longest time without a commit since the fault; ``None`` if the session had ended before.
    num_restarts : how often it found no server before its first update, and started again.
    num_resumes : how often it resumed in another call, or tried to.
    """

    request: str
    log: ClientLog
    violations: tuple[Violation, ...]
    pause_s: float | None
    num_restarts: int = 0
    num_resumes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    Attributes
    ----------
    violations : violations of servers; each client has its own.
    """

    scenario: Scenario
    clients: tuple[ClientOutcome, ...]
    violations: tuple[Violation, ...]
    has_fault_begun: bool
    took_s: float

    @property
    def all_violations(self) -> list[str]:
        """All violations, with the client's name."""
        of_clients = (f"{one.request}: {wrong}" for one in self.clients for wrong in one.violations)
        return [*map(str, self.violations), *of_clients]

    @property
    def pauses_s(self) -> list[float]:
        """Pauses of the sessions that the fault met; of lost draft servers, those that resumed."""
        met = [one for one in self.clients if one.num_resumes or self.scenario.kind not in LOSES_DRAFT]
        return [one.pause_s for one in met if one.pause_s is not None]


async def run(
    scenario: Scenario,
    folder: Path,
    *,
    fault: Fault | None = None,
    spare: TargetSettings | None = None,
    resume_timeout_s: float = 60.0,
) -> Outcome:
    """Run a scenario in its own processes; ``fault`` replaces the fault of its kind."""
    began_s = monotonic()
    async with World(scenario, folder, spare=spare, resume_timeout_s=resume_timeout_s) as world:
        await world.run(fault or FAULTS[scenario.kind])
        wrong = await server_violations(world, FREE_WITHIN_S + UNNOTICED_S.get(scenario.kind, 0.0))
        clients = tuple(
            ClientOutcome(
                str(client.request),
                client.log,
                tuple(client.violations()),
                None if world.fault_began_s is None else longest_pause_s(client.log, world.fault_began_s),
                client.num_restarts,
                client.num_resumes,
            )
            for client in world.clients
        )
        return Outcome(
            scenario, clients, tuple(wrong), world.fault_began_s is not None, monotonic() - began_s
        )


async def server_violations(world: World, within_s: float = FREE_WITHIN_S) -> list[Violation]:
    """Return violations of servers after their clients have ended."""
    wrong = [
        Violation(ViolationKind.BAD_EXIT, f"a drained server exited with {status}")
        for status in world.exit_statuses
        if status != 0
    ]
    if num_taken := await world.num_taken(within_s):
        wrong.append(Violation(ViolationKind.LEAKED_SLOTS, f"{num_taken} slots were not freed"))
    return wrong
