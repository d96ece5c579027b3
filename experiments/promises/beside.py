"""Clients of a gateway that decode hours, or hold connections: another client's recording beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from statistics import median_high, quantiles
from time import monotonic

import openai

from experiments.common.audio import silence
from experiments.common.bench.report import Bar
from experiments.promises.servers import PASS_MS
from experiments.soak.servers import Servers, running_servers
from experiments.soak.sessions import upload

NUM_UPLOADS, UPLOAD_S = 12, 5 * 3600.0
NUM_IDLE = 100
ELSEWHERE = "127.0.0.2"  # the address of clients that only hold connections
LENGTH_S = 120.0
MAX_METRICS_S = 0.2
SLOW_UPLOAD = (
    b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n"
    b"content-type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
)
WEBSOCKET = (
    b"GET /v1/realtime?intent=transcription HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Attacked:
    """Times of a client, by itself and beside others, in seconds.

    Attributes
    ----------
    what : what the others do.
    alone_s, beside_s : times that another client's recordings take.
    metrics_s : times that the gateway's metrics take meanwhile.
    """

    what: str
    alone_s: tuple[float, ...]
    beside_s: tuple[float, ...]
    metrics_s: tuple[float, ...]


def bound_beside(alone: float, spare: float, times: float = 3.0) -> float:
    """Return the bar of what takes a time ``alone`` on this machine, now."""
    return times * alone + spare


async def measure_beside(rounds: int) -> list[Attacked]:
    """Transcribe recordings one after the other, alone and beside each kind of other clients."""
    found = []
    hours = await asyncio.to_thread(silence.flac, UPLOAD_S)
    async with running_servers(pass_ms=PASS_MS, max_audio_seconds=2 * UPLOAD_S) as servers:
        await _recordings_s(servers, 1)  # all is loaded
        kinds: dict[str, Callable[[], Awaitable[object]]] = {
            f"{NUM_UPLOADS} uploads of {UPLOAD_S / 3600:g} h of silence": lambda: _upload(servers, hours),
            f"{NUM_IDLE} uploads of a byte in ten seconds": lambda: _hold(servers, SLOW_UPLOAD, b"-"),
            f"{NUM_IDLE} idle WebSockets": lambda: _hold(servers, WEBSOCKET),
        }
        for what, attack in kinds.items():
            alone_s, _ = await _recordings_s(servers, rounds)
            async with _running(attack, NUM_UPLOADS if "silence" in what else NUM_IDLE):
                await asyncio.sleep(1.0)  # they have begun
                found.append(Attacked(what, alone_s, *await _recordings_s(servers, rounds)))
    return found


def bars(attacked: Sequence[Attacked]) -> list[Bar]:
    """Return the bars: a recording takes twice its time at most, and metrics answer."""
    found = []
    for one in attacked:
        alone_s, beside_s = median_high(one.alone_s), median_high(one.beside_s)
        shown = f"{beside_s:.2f} in the median of {len(one.beside_s)}; {alone_s:.2f} alone"
        bound_s = bound_beside(alone_s, 0.05, times=2.0)
        found.append(Bar(f"another client's recording beside {one.what}, s", beside_s, bound_s, shown))
    metrics_s = [took_s for one in attacked for took_s in one.metrics_s]
    p95_s = quantiles(metrics_s, n=20)[-1]
    shown = f"{p95_s:.3f}, median {median_high(metrics_s):.3f}, at most {max(metrics_s):.3f}"
    return [*found, Bar("metrics of a gateway beside them, p95, s", p95_s, MAX_METRICS_S, shown)]


async def _recordings_s(servers: Servers, rounds: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Transcribe recordings; return their times, and those of metrics meanwhile."""
    took_s, metrics_s = [], list[float]()
    asking = asyncio.create_task(_ask_metrics(servers, metrics_s))
    try:
        for _ in range(rounds):
            began_s = monotonic()
            await upload(servers, LENGTH_S)
            took_s.append(monotonic() - began_s)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    return tuple(took_s), tuple(metrics_s)


async def _ask_metrics(servers: Servers, took_s: list[float]) -> None:
    while True:
        began_s = monotonic()
        reader, writer = await asyncio.open_connection(*servers.gateway.address.split(":"))
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        await reader.read()
        writer.close()
        took_s.append(monotonic() - began_s)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _running(attack: Callable[[], Awaitable[object]], num: int) -> AsyncIterator[None]:
    """Run an attack so many times at once, and again when one ends."""

    async def repeat() -> None:
        while True:
            with suppress(openai.APIError, ConnectionError):
                await attack()
            await asyncio.sleep(0.1)

    async with AsyncExitStack() as stack:
        for _ in range(num):
            stack.callback(asyncio.create_task(repeat()).cancel)
        yield


async def _upload(servers: Servers, data: bytes) -> None:
    url = f"http://{servers.gateway.address}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as api:
        await api.audio.transcriptions.create(file=("a.flac", data), model="whisper-1")


async def _hold(servers: Servers, head: bytes, more: bytes = b"") -> None:
    """Open a connection, send a byte now and then, and wait for its end."""
    host, port = servers.gateway.address.split(":")
    reader, writer = await asyncio.open_connection(host, port, local_addr=(ELSEWHERE, 0))
    try:
        writer.write(head)
        ended = asyncio.create_task(_read_all(reader))
        while not ended.done():
            await asyncio.wait([ended], timeout=10.0)
            writer.write(more)
    finally:
        writer.transport.abort()


async def _read_all(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reader.read(2**16):
            pass
