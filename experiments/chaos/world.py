"""Servers of one run, each in its own process, with a faulty proxy before each."""

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
NUM_TARGET_PROXIES = 3  # target addresses that the draft server knows; the last has no target at first
TARGET = TargetSettings(max_sessions=NUM_SLOTS, pass_ms=PASS_MS)
SPARE = replace(TARGET, max_sessions=NUM_SLOTS // 2)
CLIENT_TIMEOUT_S = 90.0
FREE_WITHIN_S = 10.0


class World:
    """Targets, draft servers, a proxy before each, and clients: an asynchronous context manager.

    The first target has more slots than all others, so every session starts there; the second one is its
    spare. Clients learn of a second draft server once every session has started at the first.

    Attributes
    ----------
    fault_began_s : start of the fault by the monotonic clock, or ``None``.
    target_proxies, draft_proxies : proxies before the targets and draft servers.
    exit_statuses : exit statuses of the drained servers.
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
        self.clients = [Client(request, folder, retries_opening=True) for request in scenario.clients]
        self.target_proxies: list[Proxy] = []
        self.draft_proxies: list[Proxy] = []
        self.drafts: dict[Proxy, ForkedServer] = {}
        self.targets: dict[Proxy, ForkedServer] = {}
        self.fault_began_s: float | None = None
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
        self.target_proxies = [await self._open_proxy() for _ in range(NUM_TARGET_PROXIES)]
        scenario = self.scenario
        num_drafts = 1 + (scenario.kind in SPARE_DRAFT)
        self.draft_proxies = [await self._open_proxy() for _ in range(num_drafts)]
        failpoints, in_draft = scenario.failpoints, scenario.kind in AT_DRAFT_POINTS
        target = replace(TARGET, drain_timeout_s=scenario.drain_timeout_s)
        await self.start_target(self.victim, replace(target, failpoints="" if in_draft else failpoints))
        await self.start_target(self.spare, self._spare)
        for draft_proxy in self.draft_proxies:
            await self.start_draft(draft_proxy, failpoints if in_draft else "")
        self._listing.addresses = [self.draft_proxy.address]
        self._name = await self._stack.enter_async_context(listing_locator(self._listing))
        return self

    async def _open_proxy(self) -> Proxy:
        return await self._stack.enter_async_context(Proxy.listening())

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(process.kill() for process in self._processes))
        await self._stack.aclose()

    @property
    def victim(self) -> Proxy:
        """The proxy of the target at which all sessions start."""
        return self.target_proxies[0]

    @property
    def spare(self) -> Proxy:
        """The proxy of the target to which they can migrate."""
        return self.target_proxies[1]

    @property
    def target(self) -> ForkedServer:
        """The process of the first target."""
        return self.targets[self.victim]

    async def start_target(self, proxy: Proxy, settings: TargetSettings = TARGET) -> ForkedServer:
        """Start a target and connect the proxy to it once it is ready."""
        serve = demo.serve_target if self.scenario.is_demo else serve_target
        process = self._start(serve, settings, "target")
        proxy.upstream, self.targets[proxy] = await process.ready(), process
        return process

    async def start_draft(self, draft_proxy: Proxy, failpoints: str = "") -> ForkedServer:
        """Start a draft server and connect the proxy to it once it is ready."""
        addresses = ",".join(proxy.address for proxy in self.target_proxies)
        settings = DraftSettings(
            addresses,
            max_sessions=NUM_SLOTS,
            pass_ms=DRAFT_PASS_MS,
            drain_timeout_s=self.scenario.drain_timeout_s,
            resume_timeout_s=self._resume_timeout_s,
            failpoints=failpoints,
            chooses_emptiest=True,  # the first target
        )
        serve = demo.serve_draft if self.scenario.is_demo else serve_draft
        process = self._start(serve, settings, "draft")
        draft_proxy.upstream, self.drafts[draft_proxy] = await process.ready(), process
        return process

    @property
    def draft_proxy(self) -> Proxy:
        """The proxy of the draft server at which all sessions start."""
        return self.draft_proxies[0]

    @property
    def draft(self) -> ForkedServer:
        """The process of the first draft server."""
        return self.drafts[self.draft_proxy]

    async def edit_candidates(self, edit: Callable[[], EditBlock]) -> None:
        """Put a server before the first target that edits candidates."""
        between = await self._stack.enter_async_context(bad_network(self.target.address, edit))
        self.victim.upstream = between.address

    async def run(self, fault: Callable[[World], Awaitable[None]]) -> None:
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

    async def num_taken(self, within_s: float = FREE_WITHIN_S) -> int:
        """Return the number of slots that running servers have not freed in time."""
        until_s = monotonic() + within_s
        while True:
            probed = [await process.probe("taken_slots", "sessions") for process in self._running]
            num_taken = sum(facts["taken_slots"] + facts.get("sessions", 0) for facts in probed)
            if not num_taken or monotonic() > until_s:
                return num_taken
            await asyncio.sleep(0.1)

    async def begun(self) -> None:
        """Wait until every client has commits."""
        while not all(client.has_begun for client in self.clients):
            await asyncio.sleep(0.005)

    def mark_fault(self) -> None:
        """Record that the fault begins."""
        self.fault_began_s = monotonic()

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
            self._listing.addresses = [draft_proxy.address for draft_proxy in self.draft_proxies]
            await asyncio.sleep(self.scenario.delay_s)
        await fault(self)
