"""Targets that are seconds away: sessions open and run as on near ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from experiments.chaos.clients import Client
from experiments.chaos.requests import PLAIN, FileRequest
from experiments.common.bench.report import Bar
from experiments.common.network.proxy import Proxy
from experiments.common.serve_scripted import DraftSettings, serve_draft, serve_target
from experiments.common.servers.forked import ForkedServer
from experiments.promises.servers import TARGET
from experiments.promises.sessions import violations_of
from specwhisper.types import Mode

ROUND_TRIP_S = 6.0
LENGTH_S = 1.0
MODES = (Mode.TARGET_ONLY, Mode.FULL)


@dataclass(frozen=True, slots=True)
class Far:
    """Outcome of sessions with a distant target.

    Attributes
    ----------
    longest_s : longest duration of a session.
    wrong : violations of sessions that failed or wrote another text.
    """

    num_sessions: int
    longest_s: float
    wrong: tuple[str, ...]


async def measure_far(rounds: int, folder: Path) -> Far:
    """Open a session in each mode at a draft server that has not connected to its target before."""
    longest_s, wrong = 0.0, list[str]()
    for number in range(rounds):
        async with Proxy.listening() as proxy:
            target, draft = (
                ForkedServer(serve_target, TARGET),
                ForkedServer(serve_draft, DraftSettings(proxy.address)),
            )
            try:
                proxy.upstream, proxy.latency_ms = await target.ready(), ROUND_TRIP_S * 1_000 / 2
                sessions = [
                    Client(FileRequest(PLAIN, mode, None, LENGTH_S, number, start_after_s=0.0), folder)
                    for mode in MODES
                ]
                server, began_s = await draft.ready(), monotonic()
                await asyncio.gather(*(session.run(server) for session in sessions))
                longest_s = max(longest_s, monotonic() - began_s)
            finally:
                await asyncio.gather(target.kill(), draft.kill())
        wrong += violations_of(sessions)
    return Far(rounds * len(MODES), longest_s, tuple(wrong))


def bars(far: Far) -> list[Bar]:
    """Return the bar of the sessions."""
    return [
        Bar(
            f"round trips of {ROUND_TRIP_S:g} s to the target: sessions that failed, or whose text differs",
            len(far.wrong),
            1,
            f"{len(far.wrong)} of {far.num_sessions}, the longest took {far.longest_s:.0f} s",
        )
    ]
