"""Crowds of clients at several servers, and targets of two weights."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from experiments.common.bench.program import Program
from experiments.common.bench.report import Bar, at_most, none
from experiments.common.servers.forked import ForkedServer
from experiments.faults.clients import Client, FileRequest, all_begun, recorded, run_all
from experiments.faults.report import Measure, Result
from experiments.faults.servers import Servers
from specwhisper.errors import ServerFull
from specwhisper_client.api import TranscriptionClient

FULL = f"{ServerFull.__name__}:"  # begins the error of a session that found no slot
DRAFT = {"max_sessions": 128, "pass_ms": 1.0}
crowd = partial(recorded, mode=None)  # the servers choose it


class Weights(StrEnum):
    """Which weights a target serves; the text depends on them."""

    OLD = "old"
    NEW = "new"


SEEDS = {Weights.OLD: 0, Weights.NEW: 1}


def serving(weights: Weights = Weights.OLD, **settings: Any) -> dict[str, Any]:
    return {"pass_ms": 6.0, "seed": SEEDS[weights], "weights": weights.value} | settings


def weights_of(client: Client) -> Weights | None:
    """Return the weights that alone write a client's text."""
    return next((weights for weights in Weights if client.has_text_of(SEEDS[weights])), None)


def not_whole(clients: Iterable[Client]) -> list[str]:
    """Describe each client that failed, or whose text isn't any target's."""
    return [client.log.error or "text of no target" for client in clients if weights_of(client) is None]


def all_whole(what: str, clients: Sequence[Client], wrong: Sequence[str]) -> Bar:
    return none(f"{what}: sessions that failed, or got no target's text", len(wrong), len(clients))


async def measure_mixed(run: Program) -> Result:
    """Open sessions at targets of two weights, and kill a target beside one of other weights."""
    opened: list[Client] = []
    moved: list[Client] = []
    for _ in range(run.choose(1, 5)):
        async with Servers(run.folder) as servers:
            old = await servers.target(**serving(Weights.OLD, max_sessions=4))
            new = await servers.target(**serving(Weights.NEW, max_sessions=5))
            draft = await servers.draft(old.address, new.address, **DRAFT)
            for client in crowd(12, 5.0, run.folder):
                opened += await run_all([client], draft.address)
            for _ in range(2):
                opened += await run_all(crowd(4, 60.0, run.folder), draft.address)
        moved += await _kill_beside_other_weights(run.folder)
    clients = [*opened, *moved]
    wrong = not_whole(clients)
    num_changed = sum(weights_of(client) is not Weights.OLD for client in moved)
    counts = Counter(map(weights_of, opened))
    num_unused = len(set(Weights) - set(counts))
    by_weights = ", ".join(f"{num} by {weights}" for weights, num in counts.items())
    what = "mixed weights"
    bars = [
        all_whole(what, clients, wrong),
        none(f"{what}: sessions that changed weights under way", num_changed, len(moved)),
        none(f"{what}: kinds of them that wrote no session", num_unused, note=by_weights),
    ]
    return Result(bars, {str(weights): num for weights, num in counts.items()}, wrong)


async def _kill_beside_other_weights(folder: Path) -> Sequence[Client]:
    """Kill the target of all sessions while one of other weights has the most room."""
    async with Servers(folder) as servers:
        victim = await servers.target(**serving(Weights.OLD))
        other = await servers.target(**serving(Weights.NEW, max_sessions=9))
        spare = await servers.target(**serving(Weights.OLD, max_sessions=3))
        places = [await servers.proxy(), await servers.proxy()]
        draft = await servers.draft(victim.address, *(place.address for place in places), **DRAFT)
        clients = crowd(3, 120.0, folder)
        running = asyncio.create_task(run_all(clients, draft.address))
        await all_begun(clients)
        for place, server in zip(places, (other, spare), strict=True):
            place.upstream = server.address
        await victim.kill()
        return await running


async def measure_update(run: Program) -> Result:
    """Replace each target by one of new weights while sessions open and run."""
    random = Random(run.seed)
    lengths_s = [random.choice((30.0, 120.0)) for _ in range(90)]
    requests = [FileRequest(length_s, number % 3, mode=None) for number, length_s in enumerate(lengths_s)]
    clients = [Client(request, run.folder) for request in requests]
    settings = {"max_sessions": 32, "drain_timeout_s": 60.0}  # sessions of the last old target end there
    async with Servers(run.folder) as servers:
        old = [await servers.target(**serving(**settings)) for _ in range(3)]
        places = [await servers.proxy(server.address) for server in old]
        free = await servers.proxy()
        draft = await servers.draft(*(place.address for place in (*places, free)), **DRAFT)

        async def open_one_by_one() -> None:
            async with asyncio.TaskGroup() as running:
                for client in clients:
                    running.create_task(client.run(draft.address))
                    await asyncio.sleep(random.expovariate(5.0))

        opening = asyncio.create_task(open_one_by_one())
        await all_begun(clients[:10])
        for server, place in zip(old, places, strict=True):
            free.upstream = (await servers.target(**serving(Weights.NEW, **settings))).address
            await asyncio.sleep(3.0)  # both serve
            server.signal(signal.SIGTERM)
            await server.ended()
            place.upstream, free = None, place
        await opening
        afterwards = await run_all(crowd(10, 60.0, run.folder), draft.address)
    clients += afterwards
    wrong = not_whole(clients)
    num_old = sum(weights_of(client) is not Weights.NEW for client in afterwards)
    bars = [
        all_whole("rolling update", clients, wrong),
        none("rolling update: sessions opened afterwards that got old weights", num_old, len(afterwards)),
    ]
    counts = Counter(map(weights_of, clients))
    return Result(bars, {str(weights): num for weights, num in counts.items()}, wrong)


async def measure_herd(run: Program) -> Result:
    """Open as many sessions at once as there are slots, and then more than that."""
    slots, rounds = (4, 3), run.choose(3, 20)
    refused: list[str] = []
    num_full = 0
    async with Servers(run.folder) as servers:
        targets = [await servers.target(**serving(max_sessions=num)) for num in slots]
        draft = await servers.draft(*(target.address for target in targets), **DRAFT)
        await run_all(crowd(1, 1.0, run.folder), draft.address)  # after it the draft model is in place
        for num_over in (0, 3) * rounds:
            clients = crowd(sum(slots) + num_over, 30.0, run.folder, resume_timeout_s=0)
            await run_all(clients, draft.address)
            full = [client for client in clients if (client.log.error or "").startswith(FULL)]
            num_full += min(num_over, len(full))
            refused += [*(str(client.log.error) for client in full[num_over:])]
            refused += not_whole(set(clients) - set(full))
    what = f"{sum(slots)} or more sessions at once for {slots[0]} + {slots[1]} slots"
    note = f"{num_full} beyond the last slot"
    bar = none(f"{what}: refused while there was a slot", len(refused), 2 * rounds * sum(slots), note)
    return Result([bar], {"num_full": num_full}, refused)


async def measure_opening(run: Program) -> Result:
    """Reset the connections to all targets a moment after each is used, while sessions open."""
    opening_bytes, fails_for_s, reset_every_s = 2_000, 4.0, 0.05
    clients: list[Client] = []
    num_resets: list[int] = []
    for _ in range(run.choose(1, 5)):
        async with Servers(run.folder) as servers:
            places = [await servers.proxy((await servers.target(**serving())).address) for _ in range(2)]
            draft = await servers.draft(*(place.address for place in places), **DRAFT)
            await run_all(crowd(1, 1.0, run.folder), draft.address)
            until_s = monotonic() + fails_for_s
            running = asyncio.create_task(run_all(crowd(4, 30.0, run.folder), draft.address))
            while monotonic() < until_s:
                for place in places:
                    place.bytes_left = opening_bytes if place.bytes_left is None else place.bytes_left
                await asyncio.sleep(reset_every_s)
            for place in places:
                place.bytes_left = None
            clients += await running
            num_resets.append(sum(place.num_reset for place in places))
    wrong = not_whole(clients)
    what, note = "targets lost while sessions open", f"{sum(num_resets)} connections reset"
    bars = [
        none(f"{what}: sessions that failed", len(wrong), len(clients), note),
        none(f"{what}: rounds in which none was", num_resets.count(0)),
    ]
    return Result(bars, num_resets, wrong)


async def measure_spread(run: Program) -> Result:
    """Open sessions at a list of draft servers, after a balancer, and where one of them is soon full."""
    num_drafts, num_sessions, small_slots = 3, 12, 2
    clients: list[Client] = []
    apart: list[int] = []
    at_small: list[int] = []
    num_idle = 0

    async def open_at(address: str) -> None:
        """Open sessions over the same connections, as a gateway's clients do."""
        async with TranscriptionClient(address, resume_timeout_s=0) as connections:
            opened = crowd(num_sessions, 30.0, run.folder)
            clients.extend(await run_all(opened, connections))

    for number in range(run.choose(1, 5)):
        logs = run.folder / f"round-{number}"
        logs.mkdir()
        async with Servers(logs) as servers:
            target = await servers.target(**serving(max_sessions=2 * num_sessions))
            drafts = [await servers.draft(target.address, **DRAFT) for _ in range(num_drafts)]
            small = await servers.draft(target.address, **DRAFT | {"max_sessions": small_slots})
            listed = ",".join(draft.address for draft in drafts)
            await open_at(listed)
            counts = [_num_opened(logs, draft) for draft in drafts]
            apart.append(max(counts) - min(counts))
            await open_at((await servers.proxy(listed)).address)
            num_idle += sum(
                _num_opened(logs, draft) == num for draft, num in zip(drafts, counts, strict=True)
            )
            beside = f"{small.address},{drafts[0].address}"
            await open_at(beside)
            clients += await run_all(crowd(num_sessions, 30.0, run.folder, resume_timeout_s=0), beside)
            at_small.append(_num_opened(logs, small))
    wrong = not_whole(clients)
    num_unfilled = sum(num < small_slots for num in at_small)
    unfilled = f"a draft server with room for {small_slots}: rounds in which it was not filled"
    differ = f"{num_drafts} draft servers of a list: sessions by which they differ"
    bars = [
        all_whole("several draft servers", clients, wrong),
        at_most(differ, apart, 2),
        none(f"{num_drafts} draft servers after a balancer: without a session", num_idle),
        none(unfilled, num_unfilled, note=f"{sum(at_small)} sessions in all"),
    ]
    return Result(bars, {"apart": apart, "num_idle": num_idle, "at_small": at_small}, wrong)


def _num_opened(logs: Path, server: ForkedServer) -> int:
    lines = (logs / f"{server.name}.log").read_text().splitlines()
    return sum(json.loads(line)["message"] == "session opened" for line in lines)


PARTS: dict[str, Measure] = {
    "mixed-weights": measure_mixed,
    "rolling-update": measure_update,
    "herd": measure_herd,
    "lost-while-opening": measure_opening,
    "several-drafts": measure_spread,
}
