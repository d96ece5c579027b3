"""A target that is slow, or whose shared stream goes silent: recordings continue elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from experiments.chaos.clients import Client
from experiments.common.bench.report import Bar
from experiments.common.network.bad_network import BadNetwork
from experiments.common.serve_scripted import DraftSettings, serve_draft
from experiments.common.servers.forked import ForkedServer
from experiments.promises.servers import SPARE, TARGET, Behaviour, running_pair
from experiments.promises.sessions import recorded, violations_of
from specwhisper.rpc.channels import open_channel
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire import SILENCE_S
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1.verification_pb2_grpc import add_VerificationServicer_to_server

SLOW_MS = 2_000.0
LENGTH_S, NUM_SESSIONS = 120.0, 6
MAX_SLOW_S, MAX_SILENT_S = 60.0, SILENCE_S + 10.0
VERIFICATION = pb.DESCRIPTOR.services_by_name["Verification"].full_name


@dataclass(frozen=True, slots=True)
class Continued:
    """Outcome of recordings that had to continue elsewhere.

    Attributes
    ----------
    longest_s : time of the longest, and
    max_s : its bar.
    """

    what: str
    longest_s: float
    max_s: float
    wrong: tuple[str, ...]


async def measure_slow_targets(folder: Path) -> list[Continued]:
    """Run recordings that begin at a slow target, and over a shared stream that goes silent."""
    slow = (replace(TARGET, pass_ms=SLOW_MS), Behaviour())
    async with running_pair(slow, (SPARE, Behaviour())) as pair:
        what = (
            f"{NUM_SESSIONS} recordings at a target that takes {SLOW_MS / 1000:g} s a step, a spare beside it"
        )
        found = [await _run(what, MAX_SLOW_S, pair.draft.address, folder)]
    async with running_pair((TARGET, Behaviour())) as pair, open_channel(pair.targets[0].address) as channel:
        network = _Silent(channel)
        add = partial(add_VerificationServicer_to_server, network)
        server = await start_server({VERIFICATION: add}, ServingOptions())
        draft = ForkedServer(serve_draft, DraftSettings(server.address))
        try:
            what = f"{NUM_SESSIONS} recordings whose shared stream goes silent"
            found.append(await _run(what, MAX_SILENT_S, await draft.ready(), folder))
        finally:
            await draft.kill()
            await server.stop(drain_timeout_s=0)
    if not network.num_silent:
        found[-1] = replace(found[-1], wrong=(*found[-1].wrong, "no stream went silent"))
    return found


def bars(continued: list[Continued]) -> list[Bar]:
    """Return the bars."""
    num_wrong = sum(len(one.wrong) for one in continued)
    return [
        *(Bar(f"{one.what}, s", one.longest_s, one.max_s, f"{one.longest_s:.1f}") for one in continued),
        Bar("texts that a slow or silent target changed", num_wrong, 1, f"{num_wrong}"),
    ]


async def _run(what: str, max_s: float, address: str, folder: Path) -> Continued:
    sessions = [Client(recorded(LENGTH_S, seed), folder) for seed in range(NUM_SESSIONS)]
    began_s = monotonic()
    await asyncio.gather(*(session.run(address) for session in sessions))
    return Continued(what, monotonic() - began_s, max_s, violations_of(sessions))


class _Silent(BadNetwork):
    """A network in which the first shared stream goes silent, while its connection stays open."""

    def __init__(self, target: Any) -> None:
        super().__init__(target, None, 0)
        self.num_silent = 0

    async def Share(
        self, requests: AsyncIterator[pb.ShareRequest], context: Any
    ) -> AsyncIterator[pb.ShareResponse]:
        """Forward a few responses with events."""
        num_left = 4
        async with aclosing(super().Share(requests, context)) as responses:
            async for response in responses:
                num_left -= bool(response.events)
                if num_left < 0 and not self.num_silent:
                    self.num_silent += 1
                    await asyncio.Event().wait()
                yield response
