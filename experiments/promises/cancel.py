"""Time from a client's leaving until servers hold nothing for it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any

from experiments.common.bench.report import Bar
from experiments.common.network.proxy import Proxy
from experiments.common.serve_scripted import TargetSettings
from experiments.common.servers.forked import ForkedServer, Probes
from experiments.promises.servers import NUM_SLOTS, POLL_S, Behaviour, Pair, running_pair, until
from experiments.promises.sessions import TAKES_LITTLE, bare_call
from specwhisper.types import Mode

MAX_FREE_S = 1.0
ENCODE_MS, PASS_MS, DRAFT_PASS_MS = 300.0, 100.0, 100.0
LENGTH_S = 65.0
LONG_S = 600.0
NUM_QUEUED = 6
STANDS_STILL_S = 0.5
TARGET = TargetSettings(max_sessions=NUM_SLOTS, pass_ms=PASS_MS)
QUICK_TARGET = TargetSettings(max_sessions=NUM_SLOTS)  # soon fills the buffers before its client
NOTHING_HELD = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Freed:
    """Times to free a session, by its state when the client left."""

    where: str
    took_s: tuple[float, ...]

    @property
    def longest_s(self) -> float:
        """The longest time."""
        return max(self.took_s)


async def measure_cancel(rounds: int) -> list[Freed]:
    """Leave in every state ``rounds`` times."""
    leave = {
        "queue": _in_queue,
        "encode": _in_encode,
        "draft": _in_draft,
        "verify": _in_verify,
        "socket dropped": _drop_the_socket,
        "client killed": _kill_the_client,
    }
    settings = (TARGET, Behaviour(encode_ms=ENCODE_MS))
    found: dict[str, list[float]] = {where: [] for where in leave}
    async with running_pair(settings, draft_pass_ms=DRAFT_PASS_MS) as pair:
        for _ in range(rounds):
            for where, leave_there in leave.items():
                await pair.idle()
                found[where].append(await leave_there(pair))
    found["an answer waits"] = []
    async with running_pair((QUICK_TARGET, Behaviour())) as pair:
        for _ in range(rounds):
            await pair.idle()
            found["an answer waits"].append(await _while_an_answer_waits(pair))
    return [Freed(where, tuple(took_s)) for where, took_s in found.items()]


def bars(freed: list[Freed]) -> list[Bar]:
    """Return a bar for each state."""
    return [
        Bar(
            f"free after a cancel ({one.where}), s",
            one.longest_s,
            MAX_FREE_S,
            f"{one.longest_s:.2f} at most of {len(one.took_s)}",
        )
        for one in freed
    ]


async def _in_queue(pair: Pair) -> float:
    """Cancel sessions that open between two forward passes of others."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bare_call(pair.draft.address, Mode.TARGET_ONLY, length_s=LONG_S))
        await until(pair.targets[0], "is_scoring")
        before = await pair.held()
        waiting = [
            await stack.enter_async_context(bare_call(pair.draft.address, Mode.TARGET_ONLY))
            for _ in range(NUM_QUEUED)
        ]
        await until(pair.draft, "sessions", at_least=NUM_QUEUED + 1)
        return await _cancelled(pair, *waiting, most=before)


async def _in_encode(pair: Pair) -> float:
    async with bare_call(pair.draft.address, Mode.TARGET_ONLY, length_s=LENGTH_S) as call:
        await until(pair.targets[0], "is_encoding")
        return await _cancelled(pair, call)


async def _in_draft(pair: Pair) -> float:
    async with bare_call(pair.draft.address, Mode.SYNC, length_s=LENGTH_S) as call:
        await until(pair.draft, "is_scoring")
        return await _cancelled(pair, call)


async def _in_verify(pair: Pair) -> float:
    async with bare_call(pair.draft.address, Mode.FULL, length_s=LENGTH_S) as call:
        await until(pair.targets[0], "is_scoring")
        return await _cancelled(pair, call)


async def _while_an_answer_waits(pair: Pair) -> float:
    async with bare_call(
        pair.draft.address, Mode.TARGET_ONLY, length_s=LONG_S, reads=False, options=TAKES_LITTLE
    ) as call:
        await until(pair.targets[0], "is_scoring")
        await _stands_still(pair.targets[0])
        return await _cancelled(pair, call)


async def _drop_the_socket(pair: Pair) -> float:
    async with Proxy.listening() as proxy:
        proxy.upstream = pair.draft.address
        async with bare_call(proxy.address, Mode.FULL, length_s=LENGTH_S):
            await until(pair.targets[0], "is_scoring")
            proxy.upstream = None
            proxy.reset()
            return await pair.wait_held(NOTHING_HELD)


async def _kill_the_client(pair: Pair) -> float:
    client = ForkedServer(serve_client, pair.draft.address)
    await until(pair.targets[0], "is_scoring")
    await client.kill()
    return await pair.wait_held(NOTHING_HELD)


async def serve_client(address: str, probes: Probes) -> None:
    """Send a recording and keep the call open, in a process."""
    async with bare_call(address, Mode.FULL, length_s=LENGTH_S):
        await asyncio.Event().wait()


async def _stands_still(target: ForkedServer) -> None:
    """Wait until the model has been idle for a while: every buffer is full."""
    since_s = monotonic()
    while monotonic() - since_s < STANDS_STILL_S:
        if any((await target.probe("is_scoring", "is_encoding")).values()):
            since_s = monotonic()
        await asyncio.sleep(POLL_S)


async def _cancelled(pair: Pair, *calls: Any, most: tuple[int, ...] = NOTHING_HELD) -> float:
    for call in calls:
        call.cancel()
    return await pair.wait_held(most)
