"""Many short sessions that end at any moment, and some long ones: servers leak nothing."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.common.servers.clients import MODES
from experiments.common.servers.forked import ForkedServer
from experiments.faults.clients import (
    PLAIN,
    Client,
    FileRequest,
    LiveRequest,
    bare_call,
    check_text,
    expected_text,
    run_all,
    serve_client,
    upload,
    violations_of,
)
from experiments.faults.report import Result, Run, at_most, none
from experiments.faults.servers import Servers
from specwhisper.types import LIVE_MODES, Mode
from specwhisper_client.api import TranscriptionClient

ENVIRONMENT = {  # of the servers
    "PYTHONMALLOC": "malloc",
    # Chunks that a thread keeps for itself count as allocated, up to 200 KiB a thread.
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}
SESSIONS, QUICK_SESSIONS = 2_000, 400
WARM_UP = 200
BATCH = 50  # sessions between two looks
AT_ONCE = 8  # fewer than there are slots: none is refused
MAX_GROWTH_KIB = 2.0  # per session
LEAK_BYTES = 8_192
SETTLE_S = 10.0
NUM_STREAMS, STREAMS_S, QUICK_STREAMS_S = 16, 300.0, 20.0
STAGGER_S, UTTERANCE_S, PAUSE_S = 0.3, 6.4, 1.6
MAX_LAG_S = 2.0
LENGTHS_S = (1.0, 3.0, 6.0)
MAX_STAY_S = 0.3  # of a client that leaves early
GATEWAY = "gateway"
COUNTED = ("files", "threads", "tasks", "taken_slots", "sessions")
# Pools start a thread more whenever more calls than ever happen to coincide, up to their bounds.
SPARED = {"threads": 8}
COLUMNS = ("heap, MB", "resident, MB", "files", "threads", "tasks", "KiB per session")


class Kind(StrEnum):
    """How a session begins and ends."""

    WHOLE = "whole"
    LIVE = "live"
    GATEWAY = "over the gateway"
    CANCELLED = "cancelled"
    CANCELLED_LIVE = "live, cancelled"
    CANCELLED_GATEWAY = "over the gateway, cancelled"
    ONLY_CONNECTED = "connected and left"
    KILLED = "client killed"


WEIGHTS = {
    Kind.WHOLE: 0.4,
    Kind.LIVE: 0.1,
    Kind.GATEWAY: 0.2,
    Kind.CANCELLED: 0.12,
    Kind.CANCELLED_LIVE: 0.05,
    Kind.CANCELLED_GATEWAY: 0.08,
    Kind.ONLY_CONNECTED: 0.04,
    Kind.KILLED: 0.01,
}


@dataclass(slots=True)
class Tally:
    done: Counter[Kind] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def num_at(self, server: str) -> int:
        """Count the sessions that a server had: few of them come over the gateway."""
        kinds = (Kind.GATEWAY, Kind.CANCELLED_GATEWAY) if server == GATEWAY else Kind
        return sum(self.done[kind] for kind in kinds)


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of one process.

    Attributes
    ----------
    num_sessions : that it has had.
    heap_kib : allocated memory after a garbage collection; complete, since Python uses malloc.
    resident_kib : also depends on the heap's fragmentation and varies by megabytes.
    """

    num_sessions: int
    heap_kib: float
    resident_kib: int
    files: int
    threads: int
    tasks: int
    taken_slots: int
    sessions: int


@dataclass(frozen=True, slots=True)
class Soaked:
    """Outcome of many sessions; the first sample of each server is taken once all is warm."""

    tally: Tally
    censuses: dict[str, list[Sample]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Outcome of a stream in real time; ``lag_s`` from the end of the audio to the last text."""

    violations: tuple[str, ...]
    num_reconnects: int
    lag_s: float


class Soak(Servers):
    """A target, a draft server and a gateway."""

    by_name: dict[str, ForkedServer]

    async def __aenter__(self) -> Soak:
        target = await self.target(pass_ms=0.0)
        draft = await self.draft(target.address, pass_ms=0.0)
        self.by_name = {"target": target, "draft server": draft, GATEWAY: await self.gateway(draft.address)}
        return self

    @property
    def draft_address(self) -> str:
        return self.by_name["draft server"].address


async def run_session(servers: Soak, kind: Kind, random: Random, folder: Path) -> None:
    """Run a session to its end, or leave it."""
    address, length_s = servers.draft_address, random.choice(LENGTHS_S)
    gateway = servers.by_name[GATEWAY].address
    match kind:
        case Kind.WHOLE:
            await recognize(address, length_s, random.choice(MODES), folder)
        case Kind.LIVE:
            await speak(address, random.choice(LIVE_MODES), folder)
        case Kind.GATEWAY:
            await upload(gateway, length_s, folder)
        case Kind.CANCELLED:
            await leave(recognize(address, length_s, random.choice(MODES), folder), random)
        case Kind.CANCELLED_LIVE:
            await leave(speak(address, random.choice(LIVE_MODES), folder), random)
        case Kind.CANCELLED_GATEWAY:
            await leave(upload(gateway, length_s, folder), random)
        case Kind.ONLY_CONNECTED:
            async with bare_call(address):
                await asyncio.sleep(random.uniform(0, MAX_STAY_S))
        case Kind.KILLED:
            client = ForkedServer(serve_client, address)
            await asyncio.sleep(random.uniform(0, 5 * MAX_STAY_S))
            await client.kill()


async def recognize(address: str, length_s: float, mode: Mode, folder: Path) -> None:
    request = FileRequest(length_s)
    async with TranscriptionClient(address) as client:
        transcript = await client.recognize(request.file(folder).read_bytes(), request.options, mode=mode)
    check_text(transcript.text, expected_text(PLAIN, length_s))


async def speak(address: str, mode: Mode, folder: Path) -> None:
    """Send live audio as fast as it is accepted."""
    client = Client(LiveRequest(mode, speed=inf, spans_s=((0.3, 1.1),), length_s=2.0), folder)
    await client.run(address)
    if found := client.violations():
        raise AssertionError(", ".join(map(str, found)))


async def leave(session: Coroutine[Any, Any, None], random: Random) -> None:
    """Cancel a session at a random moment, if it is not over by then."""
    running = asyncio.create_task(session)
    await asyncio.wait((running,), timeout=random.uniform(0, MAX_STAY_S))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def run_sessions(servers: Soak, num: int, random: Random, tally: Tally, folder: Path) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(kind: Kind, seed: int) -> None:
        async with room:
            try:
                await asyncio.wait_for(run_session(servers, kind, Random(seed), folder), 60.0)
            except Exception as error:
                tally.errors.append(f"{kind}: {type(error).__name__}: {error}")
            tally.done[kind] += 1

    kinds = random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=num)
    await asyncio.gather(*(one(kind, random.getrandbits(32)) for kind in kinds))


async def run_streams(address: str, num: int, length_s: float, folder: Path) -> list[Stream]:
    """Speak into streams side by side in real time."""
    every_s = UTTERANCE_S + PAUSE_S
    begins_s = (1.0 + i * every_s for i in range(int((length_s - 1.0) / every_s)))
    spans_s = tuple((begin_s, begin_s + UTTERANCE_S) for begin_s in begins_s)
    request = LiveRequest(speed=1.0, spans_s=spans_s, length_s=length_s)
    assert request.expected  # before anybody listens: it takes a while
    clients = [Client(replace(request, start_after_s=i * STAGGER_S), folder) for i in range(num)]
    return [
        Stream(
            tuple(violations_of([client])),
            client.num_resumes,
            (client.log.ended_s or inf) - client.began_s - length_s,
        )
        for client in await run_all(clients, address)
    ]


async def sample(process: ForkedServer, num_sessions: int) -> Sample:
    probed = await process.probe()
    folder = Path(f"/proc/{process.pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Sample(
        num_sessions,
        heap_kib=probed["heap_bytes"] / 1024,
        resident_kib=int(status["VmRSS"].split()[0]),
        files=len(list((folder / "fd").iterdir())),
        threads=int(status["Threads"]),
        tasks=probed["tasks"],
        taken_slots=probed.get("taken_slots", 0),
        sessions=probed.get("sessions", 0),
    )


def growth_kib(samples: Sequence[Sample]) -> float:
    """Return the growth per session by least squares."""
    sessions = np.array([each.num_sessions for each in samples], float)
    slope, _ = np.polyfit(sessions, np.array([each.heap_kib for each in samples]), 1)
    return float(slope)


def leaked(before: Sample, after: Sample) -> dict[str, int]:
    """Return what has grown; of threads, by more than a pool gains by chance."""
    more = {name: getattr(after, name) - getattr(before, name) for name in COUNTED}
    return {name: count for name, count in more.items() if count > SPARED.get(name, 0)}


async def look(servers: Soak, tally: Tally, censuses: dict[str, list[Sample]]) -> None:
    """Look at every server, once no session holds anything any more."""
    for name, process in servers.by_name.items():
        samples, until_s = censuses.setdefault(name, []), monotonic() + SETTLE_S
        found = await sample(process, tally.num_at(name))
        while (
            found.taken_slots or found.sessions or (samples and leaked(samples[0], found))
        ) and monotonic() < until_s:
            gc.collect()  # here are the clients: with calls that were left gRPC closes their connections
            await asyncio.sleep(0.05)
            found = await sample(process, tally.num_at(name))
        samples.append(found)


async def soak_in(servers: Soak, num: int, run: Run, progress: Progress, leak_bytes: int = 0) -> Soaked:
    """Warm servers up, then run sessions, of which each may leak, and look at the servers again and again."""
    random, soaked = Random(run.seed), Soaked(Tally(), {})
    task = progress.add_task("leak control" if leak_bytes else "sessions", total=WARM_UP + num)
    for done in range(0, WARM_UP + num, BATCH):
        if done >= WARM_UP:
            await look(servers, soaked.tally, soaked.censuses)
        before = {name: soaked.tally.num_at(name) for name in servers.by_name}
        await run_sessions(servers, min(BATCH, WARM_UP + num - done), random, soaked.tally, run.folder)
        if leak_bytes:
            for name, process in servers.by_name.items():
                await process.leak(soaked.tally.num_at(name) - before[name], leak_bytes)
        progress.update(task, completed=done + BATCH)
    await look(servers, soaked.tally, soaked.censuses)
    return soaked


async def measure(run: Run, num_sessions: int | None, num_streams: int, console: Console) -> Result:
    """Run the sessions, the streams on the same servers, and servers that leak, which must be noticed."""
    os.environ |= ENVIRONMENT
    num = num_sessions or run.choose(QUICK_SESSIONS, SESSIONS)
    with Progress(console=console, transient=True) as progress:
        async with Soak() as servers:
            soaked = await soak_in(servers, num, run, progress)
            streamed = await run_streams(
                servers.draft_address, num_streams, run.choose(QUICK_STREAMS_S, STREAMS_S), run.folder
            )
        async with Soak() as servers:
            leaky = await soak_in(servers, num // 2, run, progress, LEAK_BYTES)
    print_censuses(soaked.censuses, console)
    return Result(
        bars(soaked, leaky, streamed),
        {
            "sessions": {str(kind): count for kind, count in soaked.tally.done.items()},
            "growth_kib": {name: growth_kib(samples) for name, samples in soaked.censuses.items()},
            "leak_control_growth_kib": {name: growth_kib(each) for name, each in leaky.censuses.items()},
            "censuses": {name: list(map(asdict, each)) for name, each in soaked.censuses.items()},
            "streams": list(map(asdict, streamed)),
        },
        [
            *soaked.tally.errors,
            *leaky.tally.errors,
            *(line for stream in streamed for line in stream.violations),
        ],
    )


def bars(soaked: Soaked, leaky: Soaked, streamed: Sequence[Stream]) -> list[Bar]:
    found = [none("sessions that failed", len(soaked.tally.errors), soaked.tally.done.total())]
    for name, samples in soaked.censuses.items():
        growth = growth_kib(samples)
        found.append(Bar(f"growth of the {name}, KiB per session", growth, MAX_GROWTH_KIB, f"{growth:.2f}"))
        # Back to what there was when all was warm; but for threads, as pools fill when they are needed.
        baseline = replace(samples[0], threads=samples[len(samples) // 2].threads)
        left = leaked(baseline, samples[-1])
        found.append(none(f"left in the {name}", sum(left.values()), note=str(left or "")))
    for name, samples in leaky.censuses.items():
        growth = growth_kib(samples)
        shown = f"{growth:.2f} KiB per session"
        found.append(
            Bar(f"a leak of 8 KiB in the {name} is noticed", growth, MAX_GROWTH_KIB, shown, at_least=True)
        )
    if streamed:
        num_wrong = sum(bool(stream.violations) or stream.num_reconnects > 0 for stream in streamed)
        lags_s = [stream.lag_s for stream in streamed]
        found.append(none("streams that failed", num_wrong, len(streamed)))
        found.append(at_most("last text after the end of the audio, s", lags_s, MAX_LAG_S))
    return found


def print_censuses(censuses: dict[str, list[Sample]], console: Console) -> None:
    """Print what each server held first and last."""
    table = Table("server", *COLUMNS, box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, samples in censuses.items():
        first, last = samples[0], samples[-1]
        table.add_row(
            name,
            f"{first.heap_kib / 1024:.2f} to {last.heap_kib / 1024:.2f}",
            f"{first.resident_kib / 1024:.1f} to {last.resident_kib / 1024:.1f}",
            f"{first.files} to {last.files}",
            f"{first.threads} to {last.threads}",
            f"{first.tasks} to {last.tasks}",
            f"{growth_kib(samples):.2f}",
        )
    console.print(table)
