"""Crowds of clients at several servers, targets of two weights, and draft engines that hang."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from experiments.common.bench.report import Bar
from experiments.common.network.proxy import Proxy
from experiments.common.servers.forked import ForkedServer
from experiments.faults.clients import Client, FileRequest, all_begun, run_all
from experiments.faults.report import Measure, Result, Run, at_most, none
from experiments.faults.servers import Servers
from specwhisper.errors import ServerFull
from specwhisper.rpc.channels import open_channel
from specwhisper.types import Mode
from specwhisper_client.api import TranscriptionClient

NUM_RECORDINGS = 3
POLL_S = 0.01


class Weights(StrEnum):
    """Which weights a target serves; the text depends on them."""

    OLD = "old"
    NEW = "new"


SEEDS = {Weights.OLD: 0, Weights.NEW: 1}


class Fleet(Servers):
    """Servers of which each keeps a log."""

    async def target_of(self, weights: Weights = Weights.OLD, **settings: Any) -> ForkedServer:
        settings = {"pass_ms": 6.0, "seed": SEEDS[weights], "weights": weights.value} | settings
        return await self.target(**settings)

    async def draft_for(self, *targets: ForkedServer | Proxy, **settings: Any) -> ForkedServer:
        settings = {"max_sessions": 128, "pass_ms": 1.0} | settings
        return await self.draft(*(target.address for target in targets), **settings)


def crowd(num: int, length_s: float, folder: Path, *, resume_timeout_s: float = 60.0) -> list[Client]:
    return [
        Client(
            FileRequest(length_s, number % NUM_RECORDINGS, mode=None),
            folder,
            resume_timeout_s=resume_timeout_s,
        )
        for number in range(num)
    ]


def weights_of(client: Client) -> Weights | None:
    """Return the weights that alone write a client's text."""
    return next((weights for weights in Weights if client.has_text_of(SEEDS[weights])), None)


def not_whole(clients: Iterable[Client]) -> list[str]:
    """Describe each client that failed, or whose text is no target's."""
    return [client.log.error or "text of no target" for client in clients if weights_of(client) is None]


async def measure_mixed(run: Run) -> Result:
    """Open sessions at targets of two weights, and kill a target beside one of other weights."""
    opened: list[Client] = []
    moved: list[Client] = []
    for _ in range(run.choose(1, 5)):
        async with Fleet(run.folder) as fleet:
            old = await fleet.target_of(Weights.OLD, max_sessions=4)
            new = await fleet.target_of(Weights.NEW, max_sessions=5)
            draft = await fleet.draft_for(old, new)
            for client in crowd(12, 5.0, run.folder):
                opened += await run_all([client], draft.address)
            for _ in range(2):
                opened += await run_all(crowd(4, 60.0, run.folder), draft.address)
        moved += await _kill_beside_other_weights(run.folder)
    wrong = not_whole([*opened, *moved])
    num_changed = sum(weights_of(client) is not Weights.OLD for client in moved)
    counts = Counter(weights_of(client) for client in opened)
    unused = set(Weights) - set(counts)
    by_weights = ", ".join(f"{num} by {weights}" for weights, num in counts.items())
    return Result(
        [
            none(
                "mixed weights: sessions that failed, or got no target's text",
                len(wrong),
                len(opened) + len(moved),
            ),
            none("mixed weights: sessions that changed weights under way", num_changed, len(moved)),
            none("mixed weights: kinds of them that wrote no session", len(unused), note=by_weights),
        ],
        {str(weights): num for weights, num in counts.items()},
        wrong,
    )


async def _kill_beside_other_weights(folder: Path) -> Sequence[Client]:
    """Kill the target of all sessions while one of other weights has the most room."""
    async with Fleet(folder) as fleet:
        victim = await fleet.target_of(Weights.OLD)
        others = [
            await fleet.target_of(Weights.NEW, max_sessions=9),
            await fleet.target_of(Weights.OLD, max_sessions=3),
        ]
        places = [await fleet.proxy() for _ in others]
        draft = await fleet.draft_for(victim, *places)
        clients = crowd(3, 120.0, folder)
        running = asyncio.create_task(run_all(clients, draft.address))
        await all_begun(clients)
        for place, server in zip(places, others, strict=True):
            place.upstream = server.address
        await victim.kill()
        return await running


async def measure_update(run: Run) -> Result:
    """Replace each target by one of new weights while sessions open and run."""
    num_before, num_during, num_afterwards = 10, 80, 10
    random = Random(run.seed)
    clients = crowd(num_before + num_during, 30.0, run.folder)
    settings = {"max_sessions": 32, "drain_timeout_s": 60.0}  # sessions of the last old target end there
    async with Fleet(run.folder) as fleet:
        old = [await fleet.target_of(**settings) for _ in range(3)]
        places = [await fleet.proxy(server.address) for server in old]
        free = await fleet.proxy()
        draft = await fleet.draft_for(*places, free)
        updating = asyncio.Event()

        async def open_sessions() -> None:
            async with asyncio.TaskGroup() as running:
                for number, client in enumerate(clients):
                    client.request = FileRequest(random.choice((30.0, 120.0)), number % NUM_RECORDINGS)
                    running.create_task(client.run(draft.address))
                    if number == num_before:
                        updating.set()
                    await asyncio.sleep(random.expovariate(5.0))

        opening = asyncio.create_task(open_sessions())
        await updating.wait()
        for server, place in zip(old, places, strict=True):
            free.upstream = (await fleet.target_of(Weights.NEW, **settings)).address
            await asyncio.sleep(3.0)  # both serve
            server.signal(signal.SIGTERM)
            await server.ended()
            place.upstream, free = None, place
        await opening
        afterwards = await run_all(crowd(num_afterwards, 60.0, run.folder), draft.address)
    clients += afterwards
    wrong = not_whole(clients)
    num_old = sum(weights_of(client) is not Weights.NEW for client in afterwards)
    return Result(
        [
            none("rolling update: sessions that failed, or got no target's text", len(wrong), len(clients)),
            none("rolling update: sessions opened afterwards that got old weights", num_old, num_afterwards),
        ],
        {str(weights): num for weights, num in Counter(map(weights_of, clients)).items()},
        wrong,
    )


async def measure_herd(run: Run) -> Result:
    """Open as many sessions at once as there are slots, and then more than that."""
    slots, rounds = (4, 3), run.choose(3, 20)
    refused: list[str] = []
    num_full = 0
    async with Fleet(run.folder) as fleet:
        draft = await fleet.draft_for(*[await fleet.target_of(max_sessions=num) for num in slots])
        await run_all(crowd(1, 1.0, run.folder), draft.address)  # after it the draft model is in place
        for num_over in (0, 3) * rounds:
            clients = crowd(sum(slots) + num_over, 30.0, run.folder, resume_timeout_s=0)
            full, others = refusals(await run_all(clients, draft.address))
            num_full += min(num_over, len(full))
            refused += [*full[num_over:], *others]
    what = f"{sum(slots)} or more sessions at once for {slots[0]} + {slots[1]} slots"
    note = f"{num_full} beyond the last slot"
    bar = none(f"{what}: refused while there was a slot", len(refused), 2 * rounds * sum(slots), note)
    return Result([bar], {"num_full": num_full}, refused)


def refusals(clients: Sequence[Client]) -> tuple[list[str], list[str]]:
    """Return the errors of sessions that found no slot, and what else was wrong."""
    full = [client for client in clients if (client.log.error or "").startswith(f"{ServerFull.__name__}:")]
    return [str(client.log.error) for client in full], not_whole(set(clients) - set(full))


async def measure_opening(run: Run) -> Result:
    """Reset the connections to all targets a moment after each is used, while sessions open."""
    num_clients, opening_bytes, fails_for_s, reset_every_s = 4, 2_000, 4.0, 0.05
    clients: list[Client] = []
    num_resets: list[int] = []
    for _ in range(run.choose(1, 5)):
        async with Fleet(run.folder) as fleet:
            places = [await fleet.proxy((await fleet.target_of()).address) for _ in range(2)]
            draft = await fleet.draft_for(*places)
            await run_all(crowd(1, 1.0, run.folder), draft.address)
            until_s = monotonic() + fails_for_s
            running = asyncio.create_task(run_all(crowd(num_clients, 30.0, run.folder), draft.address))
            while monotonic() < until_s:
                for place in places:
                    place.bytes_left = opening_bytes if place.bytes_left is None else place.bytes_left
                await asyncio.sleep(reset_every_s)
            for place in places:
                place.bytes_left = None
            clients += await running
            num_resets.append(sum(place.num_reset for place in places))
    wrong = not_whole(clients)
    what = "targets lost while sessions open"
    note = f"{sum(num_resets)} connections reset"
    return Result(
        [
            none(f"{what}: sessions that failed", len(wrong), len(clients), note),
            none(f"{what}: rounds in which none was", num_resets.count(0)),
        ],
        num_resets,
        wrong,
    )


async def measure_spread(run: Run) -> Result:
    """Open sessions at a list of draft servers, after a balancer, and where one of them is soon full."""
    num_drafts, num_sessions, small_slots = 3, 12, 2
    clients: list[Client] = []
    apart: list[int] = []
    num_idle = 0
    at_small: list[int] = []

    async def open_at(address: str, *, over_one: bool = True) -> None:
        opened = crowd(num_sessions, 30.0, run.folder, resume_timeout_s=0)
        if over_one:  # as a gateway's clients do
            async with TranscriptionClient(address, resume_timeout_s=0) as connections:
                clients.extend(await run_all(opened, connections))
        else:
            clients.extend(await run_all(opened, address))

    for number in range(run.choose(1, 5)):
        logs = run.folder / f"round-{number}"
        logs.mkdir()
        async with Fleet(logs) as fleet:
            target = await fleet.target_of(max_sessions=2 * num_sessions)
            drafts = [await fleet.draft_for(target) for _ in range(num_drafts)]
            small = await fleet.draft_for(target, max_sessions=small_slots)
            listed = ",".join(draft.address for draft in drafts)
            await open_at(listed)
            counts = [_num_opened(logs, draft) for draft in drafts]
            apart.append(max(counts) - min(counts))
            await open_at((await fleet.proxy(listed)).address)
            num_idle += sum(
                _num_opened(logs, draft) == num for draft, num in zip(drafts, counts, strict=True)
            )
            for over_one in (True, False):
                await open_at(f"{small.address},{drafts[0].address}", over_one=over_one)
            at_small.append(_num_opened(logs, small))
    wrong = not_whole(clients)
    num_unfilled = sum(num < small_slots for num in at_small)
    full = f"a draft server with room for {small_slots}: rounds in which it was not filled"
    return Result(
        [
            none(
                "several draft servers: sessions that failed, or got no target's text",
                len(wrong),
                len(clients),
            ),
            Bar(
                f"{num_drafts} draft servers of a list: sessions by which they differ",
                max(apart),
                2,
                f"{max(apart)} at most",
            ),
            none(f"{num_drafts} draft servers after a balancer: without a session", num_idle),
            none(full, num_unfilled, note=f"{sum(at_small)} sessions in all"),
        ],
        {"apart": apart, "num_idle": num_idle, "at_small": at_small},
        wrong,
    )


def _num_opened(logs: Path, server: ForkedServer) -> int:
    """Count the sessions that a server has opened."""
    lines = (logs / f"{server.name}.log").read_text().splitlines()
    return sum(json.loads(line)["message"] == "session opened" for line in lines)


DRAFT_TIMEOUT_S = 2.0  # of the draft server, to place its model, to open a session, or for one step
MAX_OPENING_S = DRAFT_TIMEOUT_S + 2.0  # the target's first text comes soon after that
MAX_KNOWN_OPENING_S = 1.5  # of sessions that come once the hang is known: none waits for the engine
MAX_SAID_S = 9.0  # the engine is looked at four times in its time limit, and then by health every 5 s


async def measure_hung(run: Run) -> Result:
    """Hang draft engines in a step and as their models are placed, under sessions and before others."""
    rounds = run.choose(1, 5)
    results = []
    for where, measure in (("in a step", _hang_in_step), ("as it was placed", _hang_as_placed)):
        results.append(_hung(where, [await measure(run.folder) for _ in range(rounds)]))
    return Result(
        [bar for result in results for bar in result.bars],
        [result.figures for result in results],
        [line for result in results for line in result.wrong],
    )


@dataclass(slots=True)
class HungRound:
    """One hang: sessions under way, and those opened at once and once it was known.

    Attributes
    ----------
    said_s : time from the hang until health and metric reported it.
    due : sessions that should have run ``target-only``.
    """

    at_once: Sequence[Client]
    afterwards: Sequence[Client]
    said_s: float
    under_way: Sequence[Client] = ()
    due: Sequence[Client] = ()
    wrong: Sequence[str] = ()


async def _hang_in_step(folder: Path) -> HungRound:
    async with Fleet(folder) as fleet:
        target = await fleet.target_of(pass_ms=40.0)  # sessions still run when the hang is noticed
        draft = await fleet.draft_for(
            target, failpoints="draft.before=hang@60", draft_timeout_s=DRAFT_TIMEOUT_S
        )
        clients = crowd(4, 600.0, folder)
        running = asyncio.create_task(run_all(clients, draft.address))
        while not (await draft.probe("hanging"))["hanging"]:
            await asyncio.sleep(POLL_S)
        hung_s = monotonic()
        found = await _open_during(draft, folder, hung_s)
        found.under_way = await running
    noticed_s = hung_s + DRAFT_TIMEOUT_S + 1.0
    clients += [*found.at_once, *found.afterwards]
    found.due = [client for client in clients if (client.log.ended_s or inf) > noticed_s]
    return found


async def _hang_as_placed(folder: Path) -> HungRound:
    async with Fleet(folder) as fleet:
        draft = await fleet.draft_for(
            await fleet.target_of(),
            place_s=10.0,  # longer than it takes to find that out
            draft_timeout_s=DRAFT_TIMEOUT_S,
        )
        found = await _open_during(draft, folder, monotonic())  # the first session has the model placed
        while (await draft.probe("engine_hangs"))["engine_hangs"]:
            await asyncio.sleep(POLL_S)
        (last,) = await run_all(crowd(1, 30.0, folder), draft.address)
    found.due = [*found.at_once, *found.afterwards]
    found.wrong = not_whole([last])
    if last.mode is Mode.TARGET_ONLY:
        found.wrong = ["once the draft was placed, a session had no drafts"]
    return found


async def _open_during(draft: ForkedServer, folder: Path, hung_s: float) -> HungRound:
    """Open sessions at once, and again when health and metric say that the engine hangs."""
    at_once, said_s = await asyncio.gather(
        run_all(crowd(4, 30.0, folder), draft.address), _said_s(draft, hung_s)
    )
    return HungRound(at_once, await run_all(crowd(4, 30.0, folder), draft.address), said_s)


async def _said_s(draft: ForkedServer, hung_s: float) -> float:
    async with open_channel(draft.address) as channel:
        health = HealthStub(channel)
        while monotonic() - hung_s < MAX_SAID_S:
            is_said = (await health.Check(HealthCheckRequest())).status == HealthCheckResponse.NOT_SERVING
            if is_said and (await draft.probe("engine_hangs"))["engine_hangs"]:
                return monotonic() - hung_s
            await asyncio.sleep(POLL_S)
    return inf


def _hung(where: str, rounds: Sequence[HungRound]) -> Result:
    afterwards = [client for one in rounds for client in one.afterwards]
    opened = [client for one in rounds for client in one.at_once] + afterwards
    clients = [client for one in rounds for client in one.under_way] + opened
    due = [client for one in rounds for client in one.due]
    wrong = not_whole(clients) + [line for one in rounds for line in one.wrong]
    num_silent = sum(client.log.error is None and client.mode is not Mode.TARGET_ONLY for client in due)
    what = f"draft hung {where}"
    opening_s = [first_text_s(client) for client in opened]
    known_s = [first_text_s(client) for client in afterwards]
    said_s = [one.said_s for one in rounds]
    silent = none(f"{what}: sessions that did not report that they ran target-only", num_silent, len(due))
    return Result(
        [
            none(f"{what}: sessions that failed, or got no target's text", len(wrong), len(clients)),
            silent if due else none(f"{what}: sessions that should have reported it are missing", 1),
            at_most(
                f"{what}: first text of sessions opened afterwards, --draft-timeout {DRAFT_TIMEOUT_S:g}, s",
                opening_s,
                MAX_OPENING_S,
            ),
            at_most(
                f"{what}: first text of sessions opened once health said so, s", known_s, MAX_KNOWN_OPENING_S
            ),
            at_most(f"{what}: until health and metric said so, s", said_s, MAX_SAID_S),
        ],
        {"where": where, "opening_s": opening_s, "known_opening_s": known_s, "said_s": said_s},
        wrong,
    )


def first_text_s(client: Client) -> float:
    return client.log.progress_s[0] - client.began_s if client.log.progress_s else inf


PARTS: dict[str, Measure] = {
    "mixed-weights": measure_mixed,
    "rolling-update": measure_update,
    "herd": measure_herd,
    "lost-while-opening": measure_opening,
    "several-drafts": measure_spread,
    "hung-draft": measure_hung,
}
