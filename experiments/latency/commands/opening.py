"""``opening``: time to open a session on a distant target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from time import perf_counter
from typing import Annotated

import typer

from experiments.common.bench.report import open_console
from experiments.common.models.scripted import ScriptedModel
from experiments.common.network.proxy import Proxy
from experiments.common.serve_scripted import scripted_checkpoint
from specwhisper.options import DecodingOptions
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.types import Mode
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server.link.link import TargetLink
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import running_service as running_target


def opening(
    rtt_ms: Annotated[float, typer.Option(min=0, help="Added round trip, in ms.")] = 100.0,
    sessions: Annotated[
        int, typer.Option(min=2, help="Number of sessions to open, one after the other.")
    ] = 11,
) -> None:
    """Measure the time to open the first session and later ones."""
    first, *others = asyncio.run(_opened_s(rtt_ms, sessions))
    open_console().print(
        f"Over a round trip of {rtt_ms:g} ms the first session is open after {first * 1e3:.0f} ms, "
        f"{len(others)} later ones after {median(others) * 1e3:.0f} ms "
        f"({min(others) * 1e3:.0f} to {max(others) * 1e3:.0f})."
    )


async def _opened_s(rtt_ms: float, num_sessions: int) -> list[float]:
    """Open sessions over a delaying proxy; return the time of each, in seconds."""
    async with _target() as address, Proxy.listening() as proxy:
        proxy.upstream, proxy.latency_ms = address, rtt_ms / 2
        link = TargetLink(proxy.address)
        took_s = []
        for number in range(num_sessions):
            begun_s = perf_counter()
            target = link.known() or await link.describe()
            async with link.open(
                str(number), target, Mode.TARGET_ONLY, DecodingOptions.greedy(language="en"), draft_model=""
            ):
                took_s.append(perf_counter() - begun_s)
        await link.close()
        return took_s


@asynccontextmanager
async def _target() -> AsyncIterator[str]:
    config = TargetConfig()
    async with running_target(
        config, scripted_checkpoint(), ScriptedModel(config.limits.max_sessions)
    ) as service:
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, service)
        server = await start_server({"specwhisper.wire.v1.Verification": add}, ServingOptions())
        try:
            yield server.address
        finally:
            await server.stop(drain_timeout_s=0)
