"""Faults of servers and networks under running clients: each client's text is the target's alone."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import Enum
from math import nan
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Self

import grpc.aio
import numpy as np
from rich.console import Console
from rich.progress import track

from experiments.common.bench.report import Bar, none
from experiments.common.servers.forked import ForkedServer
from experiments.common.servers.proxy import Proxy
from experiments.faults.clients import (
    DEMO,
    DEMO_DRAFT,
    DEMO_TARGET,
    MODES,
    OPTIONS,
    Client,
    FileRequest,
    LiveRequest,
    Request,
    all_begun,
)
from experiments.faults.oracle import Violation, ViolationKind, longest_pause_s
from experiments.faults.report import Result
from experiments.faults.servers import NUM_SLOTS, Servers
from specwhisper.failpoints import Fault as FailpointFault
from specwhisper.types import LIVE_MODES
from specwhisper.wire import SILENCE_S
from specwhisper.wire.v1 import discovery_pb2 as pb
from specwhisper.wire.v1.discovery_pb2_grpc import DiscoveryServicer, add_DiscoveryServicer_to_server

FREE_WITHIN_S = 10.0
MAX_UNMET = 0.1  # share of runs whose sessions ended before the fault
NUM_TARGET_PLACES = 3  # target addresses that the draft server knows; the last has no target at first
CLIENT_TIMEOUT_S = 90.0
LENGTHS_S, NUM_RECORDINGS = (120.0, 200.0), 2
MAX_RESUME_S = 3.0


class Pause(Enum):
    FOR_SPARE = ("resume with a spare, p99", MAX_RESUME_S)
    FOR_DRAFT = ("resume at another draft server, p99", MAX_RESUME_S)
    FOR_SILENCE = (f"resume after a silence of {SILENCE_S:g} s, p99", SILENCE_S + MAX_RESUME_S)
    FOR_END = ("resume after the fault has ended, p99", 2.0)  # after that end


Fault = Callable[["World"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: a target's, a draft server's, or that of the network before either."""

    name: str
    fault: Fault
    pause: Pause | None = None
    points: tuple[str, ...] = ("",)  # failpoints of the server that cause it
    failpoint: FailpointFault = FailpointFault.KILL
    max_hit: int = 40  # hits of the failpoint, of which one is drawn: early in the first sessions
    of_draft: bool = False
    has_spare_draft: bool = False  # a second draft server runs, and is listed from the start
    resumes_call: bool = False  # clients resume in another call; a session that did not was not met
    may_restart: bool = False  # clients may find no server before their first text
    lasts_s: tuple[float, ...] = (0.0,)  # durations, if it ends by itself
    spare_slots: int = NUM_SLOTS // 2
    drain_timeout_s: float = 30.0  # drain timeout of the first target and of draft servers
    unnoticed_s: float = 0.0  # further time in which slots are freed, as pings without a reply time out
    is_quick: bool = True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    kind: Kind
    clients: tuple[Request, ...]
    point: str = ""  # the failpoint, and
    hit: int = 0  # on which hit it kills or hangs
    delay_s: float = 0.0  # from the start of all sessions to the fault
    lasts_s: float = 0.0
    num_bytes: int = 0  # before the network resets
    is_demo: bool = False

    @property
    def failpoints(self) -> str:
        return f"{self.point}={self.kind.failpoint}@{self.hit}" if self.point else ""

    def __str__(self) -> str:
        at = f" {self.point}, hit {self.hit}" if self.point else f" after {self.delay_s:.1f} s"
        return f"seed {self.seed}: {self.kind}{at}{f' for {self.lasts_s:g} s' if self.lasts_s else ''}"


def draw(seed: int, kind: Kind, point: str = "", *, is_demo: bool = False) -> Scenario:
    random = Random(f"{seed} {kind} {point}")
    if is_demo:
        clients: list[Request] = [replace(_draw_file(random), option=DEMO) for _ in range(3)]
    else:
        clients = [_draw_live(random) for _ in range(2)] + [_draw_file(random) for _ in range(3)]
    return Scenario(
        seed,
        kind,
        tuple(clients),
        point,
        hit=random.randint(1, kind.max_hit) if point else 0,
        delay_s=random.uniform(0, 0.8),
        lasts_s=random.choice(kind.lasts_s),
        num_bytes=random.randint(1_000, 400_000),
        is_demo=is_demo,
    )


def _draw_file(random: Random) -> FileRequest:
    return FileRequest(
        option=random.choice(sorted(OPTIONS)),
        mode=random.choice(MODES),
        gamma=random.choice((None, 4)),
        length_s=random.choice(LENGTHS_S),
        audio_seed=random.randrange(NUM_RECORDINGS),
        start_after_s=random.uniform(0, 0.3),
    )


def _draw_live(random: Random) -> LiveRequest:
    return LiveRequest(
        mode=random.choice(LIVE_MODES),
        has_utterances=random.random() < 0.7,
        continue_unverified=random.random() < 0.5,
        start_after_s=random.uniform(0, 0.3),
    )


class Listing(DiscoveryServicer):
    """A locator without Ray: returns its addresses, which may change."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)

    async def ListServers(self, request: pb.ListServersRequest, context: Any) -> pb.ListServersResponse:
        return pb.ListServersResponse(addresses=self.addresses)


@asynccontextmanager
async def listing_locator(listing: Listing) -> AsyncIterator[str]:
    server = grpc.aio.server()
    add_DiscoveryServicer_to_server(listing, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"locator:///127.0.0.1:{port}"
    finally:
        await server.stop(None)


class World(Servers):
    """Servers and clients of a scenario.

    The first target has more slots than all others, so every session starts there; the second one is its
    spare. Clients learn of a second draft server once every session has started at the first.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        spare_seed: int = 0,
        resume_timeout_s: float = 60.0,
        client_timeout_s: float = CLIENT_TIMEOUT_S,
    ) -> None:
        logs = folder / f"seed-{scenario.seed}"
        logs.mkdir(parents=True, exist_ok=True)
        super().__init__(logs)
        if scenario.is_demo:
            self.models = DEMO_TARGET, DEMO_DRAFT
        self.scenario = scenario
        self.kind = scenario.kind
        self.clients = [Client(request, folder, restarts=True) for request in scenario.clients]
        self.targets: dict[Proxy, ForkedServer] = {}  # the newest server of each proxy
        self.drafts: dict[Proxy, ForkedServer] = {}
        self.fault_began_s: float | None = None
        self.draining: list[ForkedServer] = []  # servers that must exit in order
        self.target_places: list[Proxy] = []
        self.draft_places: list[Proxy] = []
        self._listing = Listing(())
        self._name = ""
        self._spare_seed = spare_seed
        self._resume_timeout_s = resume_timeout_s
        self._client_timeout_s = client_timeout_s

    async def __aenter__(self) -> Self:
        kind, failpoints = self.kind, self.scenario.failpoints
        self.target_places = [await self.proxy() for _ in range(NUM_TARGET_PLACES)]
        self.draft_places = [await self.proxy() for _ in range(1 + kind.has_spare_draft)]
        victim, spare, _ = self.target_places
        at_target = "" if kind.of_draft else failpoints
        await self.start_target(victim, drain_timeout_s=kind.drain_timeout_s, failpoints=at_target)
        await self.start_target(spare, max_sessions=kind.spare_slots, seed=self._spare_seed)
        for place in self.draft_places:
            await self.start_draft(place, failpoints if kind.of_draft else "")
        self._listing.addresses = [self.draft_places[0].address]
        self._name = await self.stack.enter_async_context(listing_locator(self._listing))
        return self

    async def start_target(self, place: Proxy, **settings: Any) -> None:
        self.targets[place] = await self.target(**settings)
        place.upstream = self.targets[place].address

    async def start_draft(self, place: Proxy, failpoints: str = "") -> None:
        self.drafts[place] = await self.draft(
            *(place.address for place in self.target_places),
            drain_timeout_s=self.kind.drain_timeout_s,
            resume_timeout_s=self._resume_timeout_s,
            failpoints=failpoints,
            chooses_emptiest=True,  # the first target
        )
        place.upstream = self.drafts[place].address

    @property
    def places(self) -> Sequence[Proxy]:
        """The proxies of the servers that the fault meets; sessions start at the first."""
        return self.draft_places if self.kind.of_draft else self.target_places

    @property
    def victim(self) -> ForkedServer:
        """The server that the fault meets."""
        return (self.drafts if self.kind.of_draft else self.targets)[self.places[0]]

    @property
    def spare(self) -> Proxy:
        """The proxy of the target to which sessions can migrate."""
        return self.target_places[1]

    async def replace_draft(self) -> None:
        """Start another draft server if one was lost; lost targets have a spare."""
        if self.kind.of_draft:
            await self.start_draft(self.draft_places[0])

    async def drain(self, server: ForkedServer) -> None:
        self.draining.append(server)
        server.signal(signal.SIGTERM)
        await server.ended()

    async def run(self, fault: Fault) -> None:
        running = [asyncio.create_task(client.run(self._name)) for client in self.clients]
        failing = asyncio.create_task(self._fail(fault))
        _, late = await asyncio.wait(running, timeout=self._client_timeout_s)
        for task in (*late, failing):
            task.cancel()
        await asyncio.gather(*running, failing, return_exceptions=True)
        for client, task in zip(self.clients, running, strict=True):
            if task in late:
                client.log.hung_s = self._client_timeout_s
        if failing.done() and not failing.cancelled() and (error := failing.exception()) is not None:
            raise error

    def mark_fault(self) -> None:
        self.fault_began_s = monotonic()

    async def _fail(self, fault: Fault) -> None:
        if not self.scenario.point:
            await all_begun(self.clients)
            self._listing.addresses = [place.address for place in self.draft_places]
            await asyncio.sleep(self.scenario.delay_s)
        await fault(self)


@dataclass(frozen=True, slots=True)
class Session:
    request: str
    violations: tuple[Violation, ...]
    pause_s: float | None  # longest time without a commit; None if the fault did not meet the session
    num_restarts: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run; ``violations`` are those of servers."""

    scenario: Scenario
    sessions: tuple[Session, ...]
    violations: tuple[Violation, ...]
    has_fault_begun: bool
    took_s: float

    @property
    def all_of_sessions(self) -> list[Violation]:
        return [wrong for one in self.sessions for wrong in one.violations]

    @property
    def all_violations(self) -> list[str]:
        of_sessions = (f"{one.request}: {wrong}" for one in self.sessions for wrong in one.violations)
        return [*map(str, self.violations), *of_sessions]

    @property
    def pauses_s(self) -> list[float]:
        return [one.pause_s for one in self.sessions if one.pause_s is not None]

    @property
    def figures(self) -> dict[str, Any]:
        return asdict(self) | {"scenario": asdict(self.scenario) | {"kind": self.scenario.kind.name}}


async def run(scenario: Scenario, folder: Path, *, fault: Fault | None = None, **settings: Any) -> Outcome:
    began_s = monotonic()
    kind = scenario.kind
    async with World(scenario, folder, **settings) as world:
        await world.run(fault or kind.fault)
        wrong = await server_violations(world, FREE_WITHIN_S + kind.unnoticed_s)
        sessions = []
        for client in world.clients:
            was_met = world.fault_began_s is not None and (client.num_resumes or not kind.resumes_call)
            sessions.append(
                Session(
                    str(client.request),
                    tuple(client.violations()),
                    longest_pause_s(client.log, world.fault_began_s or 0.0) if was_met else None,
                    client.num_restarts,
                )
            )
        has_begun = world.fault_began_s is not None
    return Outcome(scenario, tuple(sessions), tuple(wrong), has_begun, monotonic() - began_s)


async def server_violations(world: World, within_s: float = FREE_WITHIN_S) -> list[Violation]:
    """Return violations of servers after their clients have ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FREE_WITHIN_S):
            await asyncio.gather(*(server.ended() for server in world.draining))
    wrong = [
        Violation(ViolationKind.BAD_EXIT, f"a drained server exited with {server.exit_status}")
        for server in world.draining
        if server.exit_status != 0
    ]
    await world.wait_held(within_s=within_s)
    if num_held := await world.num_held():
        wrong.append(Violation(ViolationKind.LEAKED_SLOTS, f"{num_held} slots were not freed"))
    return wrong


async def measure(scenarios: Sequence[Scenario], folder: Path, console: Console) -> Result:
    outcomes = []
    for scenario in track(scenarios, "scenarios", console=console, transient=True):
        outcomes.append(await run(scenario, folder))
    print_kinds(outcomes, console)
    wrong = [f"{outcome.scenario}: {line}" for outcome in outcomes for line in outcome.all_violations]
    return Result(bars(outcomes), [outcome.figures for outcome in outcomes], wrong)


def quantiles_s(times_s: Sequence[float]) -> tuple[float, float, float]:
    median_s, p99_s, longest_s = np.quantile(times_s, (0.5, 0.99, 1.0))
    return float(median_s), float(p99_s), float(longest_s)


def print_kinds(outcomes: Sequence[Outcome], console: Console) -> None:
    for kind in dict.fromkeys(outcome.scenario.kind for outcome in outcomes):
        of_kind = [outcome for outcome in outcomes if outcome.scenario.kind is kind]
        num_wrong = sum(bool(outcome.all_violations) for outcome in of_kind)
        pauses_s = [pause_s for outcome in of_kind for pause_s in outcome.pauses_s] or [nan]
        waited = "pauses p50 {:.2f} s, p99 {:.2f} s, longest {:.2f} s".format(*quantiles_s(pauses_s))
        console.print(f"{kind}: {num_wrong} of {len(of_kind)} runs wrong; {waited}", highlight=False)


def bars(outcomes: Sequence[Outcome]) -> list[Bar]:
    sessions = [one for outcome in outcomes for one in outcome.sessions]
    # When the only draft server is killed, clients that start just then find no server.
    there = [one for outcome in outcomes if not outcome.scenario.kind.may_restart for one in outcome.sessions]
    kinds = {outcome.scenario.kind.name for outcome in outcomes}
    met = [outcome for outcome in outcomes if outcome.pauses_s]
    num_unmet = len(outcomes) - len(met)
    num_different = sum(bool(one.violations) for one in sessions)
    num_broken = sum(bool(outcome.violations) for outcome in outcomes)
    num_idle = len(kinds - {outcome.scenario.kind.name for outcome in met})
    num_again = sum(one.num_restarts > 0 for one in there)
    shown = f"{num_unmet} of {len(outcomes)}"
    found = [
        none("transcripts that differ or fail", num_different, len(sessions)),
        none("runs whose servers leak slots or exit with an error", num_broken, len(outcomes)),
        Bar("runs whose fault met no session", num_unmet / len(outcomes), MAX_UNMET, shown),
        none("kinds of faults that met no session", num_idle, len(kinds)),
        none("sessions that had to start again", num_again, len(there)),
    ]
    for awaited in Pause:
        name, bound_s = awaited.value
        waited_s = [
            pause - outcome.scenario.lasts_s
            for outcome in outcomes
            if outcome.scenario.kind.pause is awaited
            for pause in outcome.pauses_s
        ]
        if waited_s:
            _, p99_s, _ = quantiles_s(waited_s)
            found.append(Bar(name, p99_s, bound_s, f"{p99_s:.2f} s"))
    return found
