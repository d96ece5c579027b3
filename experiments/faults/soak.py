"""Many short sessions that end at any moment, and some long ones: servers leak nothing."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np

from experiments.common.bench.program import Program
from experiments.common.bench.report import Bar, at_most, none
from experiments.common.servers.forked import ForkedServer, Probes
from experiments.faults.clients import (
    MODES,
    Client,
    FileRequest,
    LiveRequest,
    bare_call,
    check_text,
    run_all,
    upload,
    violations_of,
)
from experiments.faults.report import Result
from experiments.faults.servers import Servers
from specwhisper.types import LIVE_MODES, Mode
from specwhisper_client.api import TranscriptionClient

ENVIRONMENT = {  # the servers' environment
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
MAX_STAY_S = 0.3  # longest stay of a client that leaves early
GATEWAY = "gateway"
COUNTED = ("files", "threads", "tasks", "taken_slots", "sessions")
# Pools start a thread more whenever more calls than ever happen to coincide, up to their bounds.
SPARED = {"threads": 8}

Sample = dict[str, int]  # resources of a process, and the number of sessions that it has had


class Soak(Servers):
    by_name: dict[str, ForkedServer]

    async def __aenter__(self) -> Soak:
        target, draft = await self.pair(pass_ms=0.0, of_draft={"pass_ms": 0.0})
        self.by_name = {"target": target, "draft server": draft, GATEWAY: await self.gateway(draft.address)}
        return self

    @property
    def draft_address(self) -> str:
        return self.by_name["draft server"].address


@dataclass(frozen=True, slots=True)
class Soaked:
    done: Counter[str] = field(default_factory=Counter)  # sessions of each kind
    errors: list[str] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)  # by server, after warm-up

    def num_at(self, server: str) -> int:
        """Count the sessions that a server had: few of them come over the gateway."""
        return sum(num for kind, num in self.done.items() if server != GATEWAY or GATEWAY in kind)


async def recognize(servers: Soak, random: Random, folder: Path) -> None:
    request = FileRequest(random.choice(LENGTHS_S), mode=random.choice(MODES))
    data = request.file(folder).read_bytes()
    async with TranscriptionClient(servers.draft_address) as client:
        transcript = await client.recognize(data, request.options, mode=request.mode)
    check_text(transcript.text, request)


async def speak(servers: Soak, random: Random, folder: Path) -> None:
    request = LiveRequest(random.choice(LIVE_MODES), speed=inf, spans_s=((0.3, 1.1),), length_s=2.0)
    client = Client(request, folder)
    await client.run(servers.draft_address)
    if found := client.violations():
        raise AssertionError(", ".join(map(str, found)))


async def send_to_gateway(servers: Soak, random: Random, folder: Path) -> None:
    await upload(servers.by_name[GATEWAY].address, random.choice(LENGTHS_S), folder)


async def connect(servers: Soak, random: Random, folder: Path) -> None:
    async with bare_call(servers.draft_address):
        await asyncio.Event().wait()


async def serve_client(address: str, probes: Probes) -> None:
    """Send a recording and keep the call open, in a process that will be killed."""
    async with bare_call(address, Mode.FULL, length_s=65.0):
        await asyncio.Event().wait()


async def kill_client(servers: Soak, random: Random, folder: Path) -> None:
    client = ForkedServer(serve_client, servers.draft_address)
    await asyncio.sleep(random.uniform(0, 5 * MAX_STAY_S))
    await client.kill()


Session = Callable[[Soak, Random, Path], Coroutine[Any, Any, None]]


def left(session: Session) -> Session:
    """Cancel a session at a random moment, if it is not over by then."""

    async def leave(servers: Soak, random: Random, folder: Path) -> None:
        running = asyncio.create_task(session(servers, random, folder))
        await asyncio.wait((running,), timeout=random.uniform(0, MAX_STAY_S))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    return leave


KINDS: dict[str, tuple[float, Session]] = {  # shares of all sessions
    "whole": (0.4, recognize),
    "live": (0.1, speak),
    "over the gateway": (0.2, send_to_gateway),
    "cancelled": (0.12, left(recognize)),
    "live, cancelled": (0.05, left(speak)),
    "over the gateway, cancelled": (0.08, left(send_to_gateway)),
    "connected and left": (0.04, left(connect)),
    "client killed": (0.01, kill_client),
}


async def run_sessions(servers: Soak, num: int, random: Random, soaked: Soaked, folder: Path) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(kind: str, seed: int) -> None:
        _, session = KINDS[kind]
        async with room:
            try:
                await asyncio.wait_for(session(servers, Random(seed), folder), 60.0)
            except Exception as error:
                soaked.errors.append(f"{kind}: {type(error).__name__}: {error}")
            soaked.done[kind] += 1

    kinds = random.choices(list(KINDS), [share for share, _ in KINDS.values()], k=num)
    await asyncio.gather(*(one(kind, random.getrandbits(32)) for kind in kinds))


async def run_streams(address: str, num: int, length_s: float, folder: Path) -> Sequence[Client]:
    """Speak into streams side by side in real time."""
    every_s = UTTERANCE_S + PAUSE_S
    begins_s = (1.0 + i * every_s for i in range(int((length_s - 1.0) / every_s)))
    spans_s = tuple((begin_s, begin_s + UTTERANCE_S) for begin_s in begins_s)
    request = LiveRequest(speed=1.0, spans_s=spans_s, length_s=length_s)
    assert request.expected  # before anybody listens: it takes a while
    clients = [Client(replace(request, start_after_s=i * STAGGER_S), folder) for i in range(num)]
    return await run_all(clients, address)


async def sample(process: ForkedServer, num_sessions: int) -> Sample:
    folder = Path(f"/proc/{process.pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return await process.probe() | {
        "num_sessions": num_sessions,
        "files": len(list((folder / "fd").iterdir())),
        "threads": int(status["Threads"]),
    }


def growth_kib(samples: Sequence[Sample]) -> float:
    """Return the growth of the heap per session by least squares; Python uses malloc, so it is complete."""
    slope, _ = np.polyfit(
        [each["num_sessions"] for each in samples], [each["heap_bytes"] / 1024 for each in samples], 1
    )
    return float(slope)


def leaked(before: Sample, after: Sample) -> dict[str, int]:
    """Return what has grown; of threads, by more than a pool gains by chance."""
    more = {name: after.get(name, 0) - before.get(name, 0) for name in COUNTED}
    return {name: num for name, num in more.items() if num > SPARED.get(name, 0)}


async def look(servers: Soak, soaked: Soaked) -> None:
    """Look at every server, once no session holds anything any more."""
    for name, process in servers.by_name.items():
        samples, until_s = soaked.samples.setdefault(name, []), monotonic() + SETTLE_S
        empty = {"taken_slots": 0, "sessions": 0}
        while True:
            found = await sample(process, soaked.num_at(name))
            if not leaked(samples[0] | empty if samples else found | empty, found) or monotonic() > until_s:
                break
            gc.collect()  # here are the clients: with calls that were left gRPC closes their connections
            await asyncio.sleep(0.05)
        samples.append(found)


async def soak_in(servers: Soak, num: int, run: Program, leak_bytes: int = 0) -> Soaked:
    """Warm servers up, then run sessions, of which each may leak, and look at the servers again and again."""
    random, soaked = Random(run.seed), Soaked()
    for done in range(0, WARM_UP + num, BATCH):
        if done >= WARM_UP:
            await look(servers, soaked)
        before = {name: soaked.num_at(name) for name in servers.by_name}
        await run_sessions(servers, min(BATCH, WARM_UP + num - done), random, soaked, run.folder)
        if leak_bytes:
            for name, process in servers.by_name.items():
                await process.leak(soaked.num_at(name) - before[name], leak_bytes)
    await look(servers, soaked)
    return soaked


async def measure(run: Program) -> Result:
    """Run the sessions, the streams on the same servers, and servers that leak, which must be noticed."""
    os.environ |= ENVIRONMENT
    num = run.choose(QUICK_SESSIONS, SESSIONS)
    streams_s = run.choose(QUICK_STREAMS_S, STREAMS_S)
    with run.console.status("sessions") as status:
        async with Soak() as servers:
            soaked = await soak_in(servers, num, run)
            status.update("streams")
            streamed = await run_streams(servers.draft_address, NUM_STREAMS, streams_s, run.folder)
        status.update("sessions that leak")
        async with Soak() as servers:
            leaky = await soak_in(servers, num // 2, run, LEAK_BYTES)
    lags_s = [client.took_s - streams_s for client in streamed]
    num_wrong = sum(bool(client.violations()) or client.num_resumes > 0 for client in streamed)
    bars = [
        *soak_bars(soaked, leaky),
        none("streams that failed", num_wrong, len(streamed)),
        at_most("last text after the end of the audio, s", lags_s, MAX_LAG_S),
    ]
    figures = {"sessions": soaked.done, "samples": soaked.samples, "leaky": leaky.samples, "lags_s": lags_s}
    return Result(bars, figures, [*soaked.errors, *leaky.errors, *violations_of(streamed)])


def soak_bars(soaked: Soaked, leaky: Soaked) -> list[Bar]:
    bars = [none("sessions that failed", len(soaked.errors), soaked.done.total())]
    for name, samples in soaked.samples.items():
        growth = growth_kib(samples)
        megabytes = " to ".join(f"{each['heap_bytes'] / 2**20:.2f}" for each in (samples[0], samples[-1]))
        shown = f"{growth:.2f}, {megabytes} MB"
        bars.append(Bar(f"growth of the {name}, KiB per session", growth, MAX_GROWTH_KIB, shown))
        # Back to what there was when all was warm; but for threads, as pools fill when they are needed.
        baseline = samples[0] | {"threads": samples[len(samples) // 2]["threads"]}
        left_over = leaked(baseline, samples[-1])
        bars.append(none(f"left in the {name}", sum(left_over.values()), note=str(left_over or "")))
    for name, samples in leaky.samples.items():
        growth = growth_kib(samples)
        found = f"a leak of 8 KiB in the {name} is noticed, KiB per session"
        bars.append(Bar(found, growth, MAX_GROWTH_KIB, f"{growth:.2f}", at_least=True))
    return bars
