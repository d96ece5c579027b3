"""Links that carry hardly as much as audio in real time: recordings pass over one connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from experiments.chaos.clients import Client
from experiments.common.bench.report import Bar
from experiments.common.network.proxy import Proxy
from experiments.common.serve_scripted import DraftSettings, serve_draft, serve_target
from experiments.common.servers.forked import ForkedServer
from experiments.promises.servers import TARGET
from experiments.promises.sessions import recorded, violations_of

MAX_RATIO = 1.3
PCM_BYTES_PER_S = 32_000


@dataclass(frozen=True, slots=True)
class Passed:
    """A recording that has passed a slow link.

    Attributes
    ----------
    is_first_hop : whether the link was that of the client, and not that between the servers.
    ratio : its time, by that of its PCM at the link's rate.
    num_lost : connections that were lost.
    """

    kilobytes_per_s: float
    is_first_hop: bool
    ratio: float
    num_lost: int
    wrong: tuple[str, ...]


async def measure_slow_links(rates: tuple[float, ...], length_s: float, folder: Path) -> list[Passed]:
    """Send a recording over links of so many kB/s on either hop, all at the same time."""
    links = [(rate, is_first) for rate in rates for is_first in (True, False)]
    return await asyncio.gather(*(_measure(*link, length_s, folder) for link in links))


def bars(passed: list[Passed]) -> list[Bar]:
    """Return the bars of time, connections and texts."""
    slowest = max(passed, key=lambda one: one.ratio)
    num_lost = sum(one.num_lost for one in passed)
    num_wrong = sum(len(one.wrong) for one in passed)
    rates = ", ".join(f"{rate:g}" for rate in sorted({one.kilobytes_per_s for one in passed}))
    return [
        Bar(
            f"links of {rates} kB/s: time, by that of the PCM",
            slowest.ratio,
            MAX_RATIO,
            f"{slowest.ratio:.2f} at most, at {slowest.kilobytes_per_s:g} kB/s",
        ),
        Bar("connections lost on slow links", num_lost, 1, f"{num_lost} of {len(passed)}"),
        Bar("texts that a slow link changed", num_wrong, 1, f"{num_wrong} of {len(passed)}"),
    ]


async def _measure(rate: float, is_first_hop: bool, length_s: float, folder: Path) -> Passed:
    async with Proxy.listening() as proxy:
        target = ForkedServer(serve_target, TARGET)
        address = proxy.upstream = await target.ready()
        draft = ForkedServer(serve_draft, DraftSettings(address if is_first_hop else proxy.address))
        address = await draft.ready()
        try:
            if is_first_hop:
                proxy.upstream, address = address, proxy.address
            await Client(recorded(1.0), folder).run(address)  # connects the servers
            num_before, proxy.bytes_per_s = proxy.num_accepted, 1_000 * rate
            session, began_s = Client(recorded(length_s), folder), monotonic()
            await session.run(address)
            took_s = monotonic() - began_s
        finally:
            await asyncio.gather(target.kill(), draft.kill())
        num_lost = proxy.num_accepted - num_before - is_first_hop  # each client has a connection of its own
        own_s = length_s * PCM_BYTES_PER_S / proxy.bytes_per_s
        return Passed(rate, is_first_hop, took_s / own_s, num_lost, violations_of([session]))
