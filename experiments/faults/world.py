"""The world of one chaos run: targets, draft servers, a proxy before each, clients, and a fault."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Self

from experiments.common.network.bad_network import EditBlock, bad_network
from experiments.common.network.proxy import Proxy
from experiments.common.servers.clients import MODES
from experiments.common.servers.discovery import Listing, listing_locator
from experiments.common.servers.forked import ForkedServer
from experiments.faults import demo
from experiments.faults.clients import DEMO, OPTIONS, Client, FileRequest, LiveRequest, Request, all_begun
from experiments.faults.servers import NUM_SLOTS, Servers
from specwhisper.testing.failpoints import Fault as FailpointFault
from specwhisper.types import LIVE_MODES
from specwhisper.wire import SILENCE_S

NUM_TARGET_PLACES = 3  # target addresses that the draft server knows; the last has no target at first
CLIENT_TIMEOUT_S = 90.0
LENGTHS_S, NUM_RECORDINGS = (120.0, 200.0), 2
MAX_RESUME_S = 3.0


class Pause(Enum):
    """The end of a pause after a fault: name and bound, in seconds."""

    FOR_SPARE = ("resume with a spare, p99", MAX_RESUME_S)
    FOR_DRAFT = ("resume at another draft server, p99", MAX_RESUME_S)
    FOR_SILENCE = (
        f"resume after a silence timeout of {SILENCE_S:g} s, p99",
        SILENCE_S + MAX_RESUME_S,
    )
    FOR_END = ("resume after the fault has ended, p99", 2.0)  # after that end


Fault = Callable[["World"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: of a target, or of a draft server, or of the network before either."""

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
    drain_timeout_s: float = 30.0  # of the first target and of draft servers
    unnoticed_s: float = 0.0  # further time in which slots are freed, as pings without a reply time out
    is_quick: bool = True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Scenario:
    """Fault and clients of one run.

    Attributes
    ----------
    point, hit : failpoint at which a server kills itself or hangs, and on which hit.
    delay_s : time from the start of all sessions to the fault.
    num_bytes : bytes before the network resets.
    """

    seed: int
    kind: Kind
    clients: tuple[Request, ...]
    point: str = ""
    hit: int = 0
    delay_s: float = 0.0
    lasts_s: float = 0.0
    num_bytes: int = 0
    is_demo: bool = False

    @property
    def failpoints(self) -> str:
        return f"{self.point}={self.kind.failpoint}@{self.hit}" if self.point else ""

    def __str__(self) -> str:
        at = f" {self.point}, hit {self.hit}" if self.point else f" after {self.delay_s:.1f} s"
        return f"seed {self.seed}: {self.kind}{at}{f' for {self.lasts_s:g} s' if self.lasts_s else ''}"


def draw(seed: int, kind: Kind, point: str = "", *, is_demo: bool = False) -> Scenario:
    """Draw a scenario of a kind."""
    random = Random(f"{seed} {kind} {point}")
    if is_demo:
        clients: list[Request] = [_draw_demo(random) for _ in range(3)]
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


def _draw_demo(random: Random) -> FileRequest:
    return FileRequest(
        option=DEMO,
        mode=random.choice(MODES),
        length_s=0.0,
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


class World(Servers):
    """Servers and clients of a scenario.

    The first target has more slots than all others, so every session starts there; the second one is its
    spare. Clients learn of a second draft server once every session has started at the first.

    Attributes
    ----------
    fault_began_s : start of the fault by the monotonic clock, or ``None``.
    targets, drafts : the newest server of each proxy.
    draining : servers that must exit in order.
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
        super().__init__(folder / f"seed-{scenario.seed}")
        (folder / f"seed-{scenario.seed}").mkdir(parents=True, exist_ok=True)
        if scenario.is_demo:
            self.target_program, self.draft_program = demo.serve_target, demo.serve_draft
        self.scenario = scenario
        self.kind = scenario.kind
        self.clients = [Client(request, folder, restarts=True) for request in scenario.clients]
        self.targets: dict[Proxy, ForkedServer] = {}
        self.drafts: dict[Proxy, ForkedServer] = {}
        self.fault_began_s: float | None = None
        self.draining: list[ForkedServer] = []
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
        await self.start_target(
            victim,
            drain_timeout_s=kind.drain_timeout_s,
            failpoints="" if kind.of_draft else failpoints,
        )
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

    async def edit_candidates(self, edit: Callable[[], EditBlock]) -> None:
        """Put a server before the first target that edits candidates."""
        between = await self.stack.enter_async_context(bad_network(self.victim.address, edit))
        self.target_places[0].upstream = between.address

    async def run(self, fault: Fault) -> None:
        """Run the clients and the fault."""
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
        """Record that the fault begins."""
        self.fault_began_s = monotonic()

    async def _fail(self, fault: Fault) -> None:
        if not self.scenario.point:
            await all_begun(self.clients)
            self._listing.addresses = [place.address for place in self.draft_places]
            await asyncio.sleep(self.scenario.delay_s)
        await fault(self)
