"""The servers of one run, each a process, every connection through a network that can be made bad."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Self

from experiments.chaos import demo
from experiments.chaos.clients import Client
from experiments.chaos.scenarios import AT_DRAFT_POINTS, SPARE_DRAFT, Scenario
from experiments.common.network.bad_network import EditBlock, bad_network
from experiments.common.network.proxy import Proxy
from experiments.common.serve_scripted import DraftSettings, TargetSettings, serve_draft, serve_target
from experiments.common.servers.discovery import Listing, listing_locator
from experiments.common.servers.forked import ForkedServer, Serve

NUM_SLOTS = 16
PASS_MS, DRAFT_PASS_MS = 12.0, 2.0
NUM_PLACES = 3  # addresses of targets that the draft server knows; behind the last there is none at first
TARGET = TargetSettings(max_sessions=NUM_SLOTS, pass_ms=PASS_MS)
SPARE = replace(TARGET, max_sessions=NUM_SLOTS // 2)
CLIENT_TIMEOUT_S = 90.0
FREE_WITHIN_S = 10.0


class World:
    """Targets behind proxies, draft servers that know these, and clients; a context manager around it.

    The first target has more slots than all others together need, so every session begins there; the second
    one is its spare. A second draft server is listed to clients once every session has begun at the first.

    Attributes
    ----------
    struck_s : when the fault began, by the monotonic clock; ``None`` where it never did.
    places, fronts : the ways to targets, and to draft servers.
    exit_statuses : of the servers that were to stop in order.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        spare: TargetSettings | None = None,
        resume_timeout_s: float = 60.0,
        client_timeout_s: float = CLIENT_TIMEOUT_S,
    ) -> None:
        self.scenario = scenario
        self.clients = [Client(asked, folder, begins_again=True) for asked in scenario.clients]
        self.places: list[Proxy] = []
        self.fronts: list[Proxy] = []
        self.drafts: dict[Proxy, ForkedServer] = {}
        self.targets: dict[Proxy, ForkedServer] = {}
        self.struck_s: float | None = None
        self.exit_statuses: list[int | None] = []
        self._listing = Listing(())
        self._name = ""
        self._folder = folder
        self._spare = spare or replace(SPARE, max_sessions=scenario.spare_slots or SPARE.max_sessions)
        self._client_timeout_s = client_timeout_s
        self._resume_timeout_s = resume_timeout_s
        self._stack = AsyncExitStack()
        self._processes: list[ForkedServer] = []

    async def __aenter__(self) -> Self:
        self.places = [await self._stack.enter_async_context(Proxy.listening()) for _ in range(NUM_PLACES)]
        scenario = self.scenario
        num_fronts = 1 + (scenario.kind in SPARE_DRAFT)
        self.fronts = [await self._stack.enter_async_context(Proxy.listening()) for _ in range(num_fronts)]
        failpoints, in_draft = scenario.failpoints, scenario.kind in AT_DRAFT_POINTS
        target = replace(TARGET, drain_timeout_s=scenario.drain_timeout_s)
        await self.start_target(self.victim, replace(target, failpoints="" if in_draft else failpoints))
        await self.start_target(self.spare, self._spare)
        for front in self.fronts:
            await self.start_draft(front, failpoints if in_draft else "")
        self._listing.addresses = [self.front.address]
        self._name = await self._stack.enter_async_context(listing_locator(self._listing))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(process.kill() for process in self._processes))
        await self._stack.aclose()

    @property
    def victim(self) -> Proxy:
        """Where all sessions begin."""
        return self.places[0]

    @property
    def spare(self) -> Proxy:
        """Where they can go on."""
        return self.places[1]

    @property
    def target(self) -> ForkedServer:
        """The process of the victim."""
        return self.targets[self.victim]

    async def start_target(self, place: Proxy, settings: TargetSettings = TARGET) -> ForkedServer:
        """Start a target at a place, which leads to it once it is ready."""
        serve = demo.serve_target if self.scenario.is_demo else serve_target
        process = self._start(serve, settings, "target")
        place.leads_to, self.targets[place] = await process.ready(), process
        return process

    async def start_draft(self, front: Proxy, failpoints: str = "") -> ForkedServer:
        """Start a draft server behind a front, where clients look for one."""
        addresses = ",".join(place.address for place in self.places)
        settings = DraftSettings(
            addresses,
            max_sessions=NUM_SLOTS,
            pass_ms=DRAFT_PASS_MS,
            drain_timeout_s=self.scenario.drain_timeout_s,
            resume_timeout_s=self._resume_timeout_s,
            failpoints=failpoints,
            chooses_emptiest=True,  # the victim
        )
        serve = demo.serve_draft if self.scenario.is_demo else serve_draft
        process = self._start(serve, settings, "draft")
        front.leads_to, self.drafts[front] = await process.ready(), process
        return process

    @property
    def front(self) -> Proxy:
        """The way to the draft server that all sessions begin at."""
        return self.fronts[0]

    @property
    def draft(self) -> ForkedServer:
        """The process of that draft server."""
        return self.drafts[self.front]

    async def edit_candidates(self, edit: Callable[[], EditBlock]) -> None:
        """Put somebody before the victim who passes candidates on as edited."""
        between = await self._stack.enter_async_context(bad_network(self.target.address, edit))
        self.victim.leads_to = between.address

    async def run(self, fault: Callable[[World], Awaitable[None]]) -> None:
        """Let the clients run, and a fault meet them."""
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

    async def num_taken(self, within_s: float = FREE_WITHIN_S) -> int:
        """Count the slots that no session gives back in time, at all servers that run."""
        until_s = monotonic() + within_s
        while True:
            probed = [await process.probe("taken_slots", "sessions") for process in self._running]
            num_taken = sum(facts["taken_slots"] + facts.get("sessions", 0) for facts in probed)
            if not num_taken or monotonic() > until_s:
                return num_taken
            await asyncio.sleep(0.1)

    async def begun(self) -> None:
        """Wait until the target has committed something to every client."""
        while not all(client.has_begun for client in self.clients):
            await asyncio.sleep(0.005)

    def strike(self) -> None:
        """Note that the fault begins."""
        self.struck_s = monotonic()

    @property
    def _running(self) -> list[ForkedServer]:
        servers = (*self.targets.values(), *self.drafts.values())
        return [process for process in servers if process.ended_s is None]

    def _start(self, serve: Serve, settings: Any, kind: str) -> ForkedServer:
        number = len(self._processes)
        log = self._folder / f"seed-{self.scenario.seed}-{number}-{kind}.log"
        self._processes.append(ForkedServer(serve, settings, log))
        return self._processes[-1]

    async def _fail(self, fault: Callable[[World], Awaitable[None]]) -> None:
        if not self.scenario.point:
            await self.begun()
            self._listing.addresses = [front.address for front in self.fronts]
            await asyncio.sleep(self.scenario.delay_s)
        await fault(self)
