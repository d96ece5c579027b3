"""Promises of a gateway: odd messages, hours of audio and held connections keep no other client waiting."""

from __future__ import annotations

import asyncio
import base64
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median_high, quantiles
from time import monotonic
from typing import Any

import openai
from websockets.frames import Frame, Opcode

from experiments.common.bench.program import Program
from experiments.common.bench.report import Bar, at_most
from experiments.faults import silence
from experiments.faults.clients import upload
from experiments.faults.report import Result
from experiments.faults.servers import Peak, Servers

SETTLE_S = 0.2  # the effects of a message may delay others too
PROBE_EVERY_S = 0.005
SIZES = (60_000, 1_000_000, 14_000_000)  # below the limit of control messages, of all, and far above
MOST_ANSWERED_BYTES = 120_000  # each of these messages is answered: seconds of work
REALTIME, LIVE = "/v1/realtime?intent=transcription", "/live"
FORM = "multipart/form-data; boundary=x"
SLOW_UPLOAD = (
    b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n"
    b"content-type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
)


async def opened(address: str, **options: Any) -> tuple[StreamReader, StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port), **options)


def upgrade(path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    ).encode()


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes that a connection sends, to a WebSocket if there is a path of one."""

    shape: str
    path: str
    content: bytes


async def measure_messages(run: Program) -> Result:
    """Send messages of every shape and size, each over its own connection, beside a client's GETs."""
    sizes, lead, rounds = run.choose((SIZES[-1:], 1, 3), (SIZES, 2, 9))
    alone_ms: dict[str, list[float]] = {}
    delays_ms: dict[str, list[float]] = {}
    growths_mib: dict[str, list[float]] = {}
    async with Servers() as servers:
        _, draft = await servers.pair(pass_ms=0.0)
        gateway = await servers.gateway(draft.address)
        start = frame(Opcode.TEXT, _json({"type": "start"}))
        await _send(gateway.address, Message("audio", LIVE, start))  # all is loaded
        for message in messages(sizes):
            name = f"{len(message.content)} bytes of {message.shape}"
            alone = alone_ms[name] = []
            delays = delays_ms[name] = []
            growths = growths_mib[name] = []
            num_fine = 0
            while 2 * num_fine - len(delays) < lead and len(delays) < rounds:
                peak = Peak(gateway.pid)
                began_s = monotonic()
                delays.append(await longest_ms(gateway.address, _send(gateway.address, message)))
                took_s = monotonic() - began_s - SETTLE_S
                growths.append(peak.growth_mib())
                alone.append(await longest_ms(gateway.address, asyncio.sleep(took_s)))
                num_fine += delays[-1] < bound_ms(alone[-1:])
    bounds_ms = {name: bound_ms(alone) for name, alone in alone_ms.items()}
    # A time that came once may be another program's.
    slowest = max(bounds_ms, key=lambda name: median_high(delays_ms[name]) - bounds_ms[name])
    once = max(bounds_ms, key=lambda name: max(delays_ms[name]) - 10 * bounds_ms[name])
    largest = max(bounds_ms, key=lambda name: max(growths_mib[name]))
    delay_ms = median_high(delays_ms[slowest])
    get = "another client's GET beside any message to a gateway"
    shown = f"{delay_ms:.1f} in the median, beside {slowest}; {median_high(alone_ms[slowest]):.1f} without"
    growth = "growth of a gateway that is sent one message, MiB"
    bars = [
        Bar(f"{get}, ms", delay_ms, bounds_ms[slowest], shown),
        at_most(f"{get}, once, ms", delays_ms[once], 10 * bounds_ms[once], f"at most, beside {once}"),
        at_most(growth, growths_mib[largest], 64.0, f"at most, by {largest}"),
    ]
    return Result(bars, {"alone_ms": alone_ms, "delays_ms": delays_ms})


def bound_ms(alone_ms: Sequence[float]) -> float:
    return 3 * median_high(alone_ms) + 50.0


async def longest_ms(address: str, meanwhile: Awaitable[None]) -> float:
    """Return the slowest GET while something happens, and for a moment after it.

    Of more GETs one is slower, whatever happens: times to compare last as long as each other.
    """
    reader, writer = await opened(address)

    async def ask() -> None:
        writer.write(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readuntil(b'"ok"}')

    async with timed(ask, PROBE_EVERY_S) as waited_s:
        await meanwhile
        await asyncio.sleep(SETTLE_S)
        while not waited_s:  # a busy machine answers none within that time
            await asyncio.sleep(PROBE_EVERY_S)
    writer.transport.abort()
    return 1_000 * max(waited_s)


@asynccontextmanager
async def timed(ask: Callable[[], Awaitable[object]], every_s: float) -> AsyncIterator[list[float]]:
    took_s: list[float] = []

    async def repeat() -> None:
        while True:
            began_s = monotonic()
            await ask()
            took_s.append(monotonic() - began_s)
            await asyncio.sleep(every_s)

    asking = asyncio.create_task(repeat())
    try:
        yield took_s
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def messages(sizes: Sequence[int]) -> Iterator[Message]:
    """Yield every message: each shape in all sizes, from the smallest on."""
    for size, smaller in zip(sizes, (0, *sizes), strict=False):
        keys = {f"k{number}": 1 for number in range(size // 12)}
        audio = base64.b64encode(bytes(size * 3 // 4 // 4 * 2)).decode()
        start = {"type": "start", "sample_rate": 16_000}
        words = {"audio": {"input": {"transcription": {"keywords": [1] * (size // 3)}}}}
        position = {"position": {"pieces": [{"start_sample": 0, "tokens": ["x"] * (size // 5)}]}}
        append = {"type": "input_audio_buffer.append", "audio": audio}
        events: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("unknown keys", REALTIME, _update(keys)),
            ("unknown keys within", REALTIME, _update({"audio": {"input": keys}})),
            ("wrong words", REALTIME, _update(words)),
            ("audio", REALTIME, append),
            ("audio that isn't base64", REALTIME, append | {"audio": f"{audio}#"}),
            ("unknown keys for the page", LIVE, start | keys),
            ("wrong tokens", LIVE, start | position),
        )
        for shape, path, event in events:
            yield Message(shape, path, frame(Opcode.TEXT, _json(event)))
        yield Message("open brackets", REALTIME, frame(Opcode.TEXT, b"[" * size))
        begun = frame(Opcode.TEXT, _json(start))
        yield Message("bytes for the page", LIVE, begun + frame(Opcode.BINARY, bytes(size)))
        fragments = frame(Opcode.CONT, b"", fin=False) * (size // 6)
        yield Message("empty fragments", REALTIME, frame(Opcode.TEXT, b"", fin=False) + fragments)
        yield Message("pings", REALTIME, frame(Opcode.PING, b"") * (size // 6))
        yield Message("tiny chunks", "", _posted(FORM, b"1\r\nx\r\n" * (size // 6)))
        fields = _chunk(b"a&" * (size // 2))
        yield Message("empty fields", "", _posted("application/x-www-form-urlencoded", fields))
        part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
        yield Message("empty parts", "", _posted(FORM, _chunk(part * (size // len(part)))))
        yield Message("headers", "", b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * (size // 6) + b"\r\n")
        if smaller < MOST_ANSWERED_BYTES:
            answered = min(size, MOST_ANSWERED_BYTES)
            yield Message("tiny messages", REALTIME, frame(Opcode.TEXT, b"x") * (answered // 7))
            requests = b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n"
            yield Message("requests at once", "", requests * (answered // len(requests)))


def frame(opcode: Opcode, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=True)


def _update(session: dict[str, Any]) -> dict[str, Any]:
    return {"type": "session.update", "session": session}


def _json(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def _posted(media_type: str, chunks: bytes) -> bytes:
    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: a\r\ncontent-type: {media_type}\r\n"
    return head.encode() + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


async def _send(address: str, message: Message) -> None:
    """Send a message for some seconds, and take what is answered until nothing comes any more."""
    reader, writer = await opened(address)
    try:
        if message.path:
            writer.write(upgrade(message.path))
            await reader.readuntil(b"\r\n\r\n")
        taking = asyncio.create_task(_take(reader, SETTLE_S))
        with suppress(ConnectionError, TimeoutError):
            writer.write(message.content)
            async with asyncio.timeout(3.0):
                await writer.drain()
        await taking
    finally:
        writer.transport.abort()


async def _take(reader: StreamReader, silent_s: float | None = None) -> None:
    """Read until the end, or until nothing has come for a moment."""
    with suppress(ConnectionError, TimeoutError):
        while True:
            async with asyncio.timeout(silent_s):
                if not await reader.read(2**16):
                    return


async def measure_beside(run: Program) -> Result:
    """Transcribe recordings one after the other, alone and beside each kind of other clients."""
    rounds, upload_s, num_idle = run.choose(3, 9), 5 * 3600.0, 100
    hours = await asyncio.to_thread(silence.flac, upload_s)
    bars, figures, metrics_s = [], {}, list[float]()
    async with Servers() as servers:
        _, draft = await servers.pair(of_draft={"pass_ms": 0.0})
        gateway = await servers.gateway(draft.address, max_audio_seconds=2 * upload_s)
        transcribe = partial(_recordings_s, gateway.address, run.folder)
        await transcribe(1)  # all is loaded
        attacks: dict[str, tuple[int, Callable[[], Awaitable[object]]]] = {
            f"12 uploads of {upload_s / 3600:g} h of silence": (12, partial(_upload, gateway.address, hours)),
            f"{num_idle} uploads of a byte in ten seconds": (
                num_idle,
                partial(_hold, gateway.address, SLOW_UPLOAD, b"-"),
            ),
            f"{num_idle} idle WebSockets": (num_idle, partial(_hold, gateway.address, upgrade(REALTIME))),
        }
        for what, (num, attack) in attacks.items():
            alone_s, _ = await transcribe(rounds)
            async with _running(attack, num):
                await asyncio.sleep(1.0)  # they have begun
                beside_s, asked_s = await transcribe(rounds)
            metrics_s += asked_s
            alone, beside = median_high(alone_s), median_high(beside_s)
            shown = f"{beside:.2f} in the median of {rounds}; {alone:.2f} alone"
            bars.append(Bar(f"another client's recording beside {what}, s", beside, 2 * alone + 0.05, shown))
            figures[what] = {"alone_s": alone_s, "beside_s": beside_s}
    p95_s = quantiles(metrics_s, n=20)[-1]
    shown = f"{p95_s:.3f}, median {median_high(metrics_s):.3f}, at most {max(metrics_s):.3f}"
    bars.append(Bar("metrics of a gateway beside them, p95, s", p95_s, 0.2, shown))
    return Result(bars, figures)


async def _recordings_s(gateway: str, folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    took_s = []

    async def ask() -> None:
        reader, writer = await opened(gateway)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        await reader.read()
        writer.close()

    async with timed(ask, 0.05) as metrics_s:
        for _ in range(rounds):
            began_s = monotonic()
            await upload(gateway, 120.0, folder)
            took_s.append(monotonic() - began_s)
    return took_s, metrics_s


@asynccontextmanager
async def _running(attack: Callable[[], Awaitable[object]], num: int) -> AsyncIterator[None]:
    """Keep ``num`` attacks running: one that ends begins again."""

    async def repeat() -> None:
        while True:
            with suppress(openai.APIError, ConnectionError):
                await attack()
            await asyncio.sleep(0.1)

    async with AsyncExitStack() as stack:
        for _ in range(num):
            stack.callback(asyncio.create_task(repeat()).cancel)
        yield


async def _upload(gateway: str, data: bytes) -> None:
    async with openai.AsyncOpenAI(base_url=f"http://{gateway}/v1", api_key="any", max_retries=0) as api:
        await api.audio.transcriptions.create(file=("a.flac", data), model="whisper-1")


async def _hold(gateway: str, head: bytes, more: bytes = b"") -> None:
    """Open a connection from another address, send a byte now and then, and wait for its end."""
    reader, writer = await opened(gateway, local_addr=("127.0.0.2", 0))
    try:
        writer.write(head)
        ended = asyncio.create_task(_take(reader))
        while not ended.done():
            await asyncio.wait([ended], timeout=10.0)
            writer.write(more)
    finally:
        writer.transport.abort()
