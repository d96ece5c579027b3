"""The servers of a fleet: real processes with scripted models, of two releases of the weights."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from experiments.common.network.proxy import Proxy
from experiments.common.serve_scripted import DraftSettings, TargetSettings, serve_draft, serve_target
from experiments.common.servers.forked import ForkedServer, Serve

PASS_MS, DRAFT_PASS_MS = 6.0, 1.0
MAX_DRAFT_SESSIONS = 128


class Weights(StrEnum):
    """Which release of the weights a target serves; the text depends on it."""

    OLD = "old"
    NEW = "new"


SEEDS = {Weights.OLD: 0, Weights.NEW: 1}  # of the text that a scripted model writes
TARGET = TargetSettings(pass_ms=PASS_MS)


class Fleet:
    """Start servers, and kill those that still run at the end: an asynchronous context manager.

    Parameters
    ----------
    folder : where each process writes its log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[ForkedServer] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(process.kill() for process in self._processes))
        await self._stack.aclose()

    async def place(self, server: ForkedServer | None = None) -> Proxy:
        """Open an address that leads to a server; to none, and refusing connections, until one is set."""
        place = await self._stack.enter_async_context(Proxy.listening())
        place.upstream = server and server.address
        return place

    async def start_target(
        self, release: Weights = Weights.OLD, settings: TargetSettings = TARGET, **changes: Any
    ) -> ForkedServer:
        """Start a target server and wait until it is ready; ``changes`` are fields of its settings."""
        changes = {"seed": SEEDS[release], "weights": release.value} | changes
        settings = replace(settings, **changes)
        return await self._start(serve_target, settings, f"target-{release}")

    async def start_draft(self, *targets: str, **changes: Any) -> ForkedServer:
        """Start a draft server that knows these targets' addresses and wait until it is ready."""
        settings = DraftSettings(",".join(targets), max_sessions=MAX_DRAFT_SESSIONS, pass_ms=DRAFT_PASS_MS)
        return await self._start(serve_draft, replace(settings, **changes), "draft")

    async def _start(self, serve: Serve, settings: Any, kind: str) -> ForkedServer:
        number = sum(1 for _ in self.folder.glob("*.log"))
        process = ForkedServer(serve, settings, self.folder / f"{number}-{kind}.log")
        self._processes.append(process)
        await process.ready()
        return process
