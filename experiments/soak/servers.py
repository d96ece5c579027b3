"""A target, a draft server and a gateway, each a process that starts in a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from experiments.common.serve_scripted import DraftSettings, TargetSettings, serve_draft, serve_target
from experiments.common.servers.forked import ForkedServer, Probes
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.server import GatewayServer, serve_until_signal

NUM_SLOTS = 16
GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Servers:
    """The processes."""

    target: ForkedServer
    draft: ForkedServer
    gateway: ForkedServer

    @property
    def all(self) -> dict[str, ForkedServer]:
        """Each by its name."""
        return {"target": self.target, "draft server": self.draft, GATEWAY: self.gateway}


@asynccontextmanager
async def running_servers(*, pass_ms: float = 0.0, **of_gateway: Any) -> AsyncIterator[Servers]:
    """Keep them running; a forward pass of the target takes a time."""
    started: list[ForkedServer] = []
    try:
        started.append(ForkedServer(serve_target, TargetSettings(max_sessions=NUM_SLOTS, pass_ms=pass_ms)))
        settings = DraftSettings(await started[0].ready(), max_sessions=NUM_SLOTS)
        started.append(ForkedServer(serve_draft, settings))
        config = GatewayConfig(server=await started[1].ready(), port=0, **of_gateway)
        started.append(ForkedServer(serve_gateway, config))
        await started[2].ready()
        yield Servers(*started)
    finally:
        await asyncio.gather(*(process.kill() for process in started))


async def serve_gateway(config: GatewayConfig, probes: Probes) -> None:
    """Serve until a signal."""
    server = GatewayServer(config)
    probes["sessions"] = lambda: server.num_transcriptions
    await serve_until_signal(server)
