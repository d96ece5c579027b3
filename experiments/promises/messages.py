"""Messages of every size and shape, sent to a gateway: how long other clients wait meanwhile."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from statistics import median_high
from time import monotonic
from typing import Any

from experiments.common.bench.report import Bar
from experiments.common.servers.forked import ForkedServer
from experiments.promises.beside import bound_beside
from experiments.promises.memory import Peak
from experiments.promises.talkative import talkative_gateway
from experiments.soak.servers import running_servers

SPARE_MS = 50.0
ONCE = 10  # times the bar: what else the machine does may delay a single answer
MAX_GROWTH_BYTES = 64 * 2**20
SETTLE_S = 0.2  # the effects of a message may delay others too
SENT_S = 3.0  # a message that takes longer is left
PROBE_EVERY_S = 0.005
SIZES = (60_000, 1_000_000, 14_000_000)  # below the limit of control messages, of all, and far above
QUICK_SIZES = SIZES[-1:]

REALTIME, LIVE = "/v1/realtime?intent=transcription", "/live"
TEXT, BINARY, CONTINUED, PING = 1, 2, 0, 9  # WebSocket frames
FINAL = 0x80
MOST_ANSWERED_BYTES = 120_000  # of messages that are each answered: seconds of work
FORM = "multipart/form-data; boundary=x"
TRANSCRIPT_S = 4 * 3600.0  # the longest recording that a gateway takes
WRITTEN_S = 20.0  # for a transcript of it
FORMATS = ("verbose_json", "srt", "vtt", "json", "text")


@dataclass(frozen=True, slots=True)
class Sent:
    """Outcome of one message, sent several times.

    Attributes
    ----------
    alone_ms, delays_ms : each time, the slowest GET of another client just after, for as long, and meanwhile.
    growth_bytes : of the gateway's resident memory, from before the message to its height, at most.
    """

    shape: str
    num_bytes: int
    alone_ms: tuple[float, ...]
    delays_ms: tuple[float, ...]
    growth_bytes: int

    @property
    def delay_ms(self) -> float:
        """The median delay: what came once may be another program's."""
        return median_high(self.delays_ms)

    @property
    def bound_ms(self) -> float:
        """The bar of the median delay."""
        return bound_beside(median_high(self.alone_ms), SPARE_MS)


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes that a connection sends, to a WebSocket where there is a path of one.

    Attributes
    ----------
    silent_s : nothing is answered any more once nothing has come for so long.
    """

    shape: str
    path: str
    content: bytes
    silent_s: float = SETTLE_S


async def measure_messages(sizes: Sequence[int], lead: int, rounds: int) -> list[Sent]:
    """Send every message, each over its own connection, while another client asks for little.

    Parameters
    ----------
    lead : by which rounds below the bar outnumber the others before no more are needed.
    rounds : how often at most.
    """
    found = []
    async with running_servers() as servers, talkative_gateway(TRANSCRIPT_S) as talkative:
        start = frame(TEXT, _json({"type": "start"}))
        await _send(servers.gateway.address, Message("audio", LIVE, start))  # all is loaded
        await _send(talkative.address, next(recordings()))
        for message in messages(sizes):
            found.append(await _measured(servers.gateway, message, lead, rounds))
        for message in recordings():
            found.append(await _measured(talkative, message, lead, rounds))
    return found


async def _measured(gateway: ForkedServer, message: Message, lead: int, rounds: int) -> Sent:
    alone_ms: list[float] = []
    delays_ms: list[float] = []
    growths: list[int] = []
    while not is_decided(alone_ms, delays_ms, lead, rounds):
        peak = Peak(gateway.pid)
        began_s = monotonic()
        delays_ms.append(await longest_ms(gateway.address, _send(gateway.address, message)))
        took_s = monotonic() - began_s - SETTLE_S
        growths.append(peak.growth_bytes())
        alone_ms.append(await longest_ms(gateway.address, asyncio.sleep(took_s)))
    return Sent(message.shape, len(message.content), tuple(alone_ms), tuple(delays_ms), max(growths))


async def longest_ms(address: str, meanwhile: Awaitable[None]) -> float:
    """Return the slowest GET while something happens, and for a moment after it.

    Of more GETs one is slower, whatever happens: times to compare last as long as each other.
    """
    async with _probing(address) as waited_ms:
        await meanwhile
        await asyncio.sleep(SETTLE_S)
        while not waited_ms:  # a busy machine answers none within that time
            await asyncio.sleep(PROBE_EVERY_S)
    return max(waited_ms)


def is_decided(alone_ms: Sequence[float], delays_ms: Sequence[float], lead: int, rounds: int) -> bool:
    """Return whether rounds below the bar are well in the majority, or there were as many as may be."""
    times = zip(alone_ms, delays_ms, strict=True)
    num_fine = sum(delay_ms < bound_beside(alone, SPARE_MS) for alone, delay_ms in times)
    return num_fine - (len(delays_ms) - num_fine) >= lead or len(delays_ms) >= rounds


def bars(sent: list[Sent]) -> list[Bar]:
    """Hold the slowest answer and the growth against their bars."""
    slowest = max(sent, key=lambda one: one.delay_ms - one.bound_ms)
    largest = max(sent, key=lambda one: one.growth_bytes)
    once = max(sent, key=lambda one: max(one.delays_ms) - ONCE * one.bound_ms)
    once_ms = max(once.delays_ms)
    return [
        Bar(
            "another client's GET beside any message to a gateway, ms",
            slowest.delay_ms,
            slowest.bound_ms,
            f"{slowest.delay_ms:.1f} in the median, beside {slowest.num_bytes} bytes of {slowest.shape}; "
            f"{median_high(slowest.alone_ms):.1f} without, for as long",
        ),
        Bar(
            "another client's GET beside any message to a gateway, once, ms",
            once_ms,
            ONCE * once.bound_ms,
            f"{once_ms:.1f} at most, beside {once.num_bytes} bytes of {once.shape}",
        ),
        Bar(
            "growth of a gateway that is sent one message, MiB",
            largest.growth_bytes / 2**20,
            MAX_GROWTH_BYTES / 2**20,
            f"{largest.growth_bytes / 2**20:.1f} at most, by {largest.num_bytes} bytes of {largest.shape}",
        ),
    ]


def messages(sizes: Sequence[int]) -> Iterator[Message]:
    """Yield every message: each shape in all sizes, from the smallest on."""
    for size, smaller in zip(sizes, (0, *sizes), strict=False):
        keys = {f"k{number}": 1 for number in range(size // 12)}
        update = {"type": "session.update", "session": keys}
        yield Message("unknown keys", REALTIME, frame(TEXT, _json(update)))
        update = {"type": "session.update", "session": {"audio": {"input": keys}}}
        yield Message("unknown keys within", REALTIME, frame(TEXT, _json(update)))
        words = {"audio": {"input": {"transcription": {"keywords": [1] * (size // 3)}}}}
        update = {"type": "session.update", "session": words}
        yield Message("wrong words", REALTIME, frame(TEXT, _json(update)))
        yield Message("open brackets", REALTIME, frame(TEXT, b"[" * size))
        audio = base64.b64encode(bytes(size * 3 // 4 // 4 * 2)).decode()
        event = {"type": "input_audio_buffer.append", "audio": audio}
        yield Message("audio", REALTIME, frame(TEXT, _json(event)))
        yield Message("audio that is no base64", REALTIME, frame(TEXT, _json(event | {"audio": f"{audio}#"})))
        start = {"type": "start", "sample_rate": 16_000}
        yield Message("unknown keys for the page", LIVE, frame(TEXT, _json(start | keys)))
        position = {"position": {"pieces": [{"start_sample": 0, "tokens": ["x"] * (size // 5)}]}}
        yield Message("wrong tokens", LIVE, frame(TEXT, _json(start | position)))
        yield Message("bytes for the page", LIVE, frame(TEXT, _json(start)) + frame(BINARY, bytes(size)))
        fragments = frame(CONTINUED, b"", final=False) * (size // 6)
        yield Message("empty fragments", REALTIME, frame(TEXT, b"", final=False) + fragments)
        yield Message("pings", REALTIME, frame(PING, b"") * (size // 6))
        yield Message("tiny chunks", "", _posted(FORM, b"1\r\nx\r\n" * (size // 6)))
        fields = _chunk(b"a&" * (size // 2))
        yield Message("empty fields", "", _posted("application/x-www-form-urlencoded", fields))
        part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
        parts = part * (size // len(part))
        yield Message("empty parts", "", _posted(FORM, _chunk(parts)))
        yield Message("headers", "", b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * (size // 6) + b"\r\n")
        if smaller < MOST_ANSWERED_BYTES:
            answered = min(size, MOST_ANSWERED_BYTES)
            yield Message("tiny messages", REALTIME, frame(TEXT, b"x") * (answered // 7))
            requests = b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n"
            yield Message("requests at once", "", requests * (answered // len(requests)))


def recordings() -> Iterator[Message]:
    """Yield recordings, which a talkative draft server turns into long transcripts in each format."""
    for response_format in FORMATS:
        fields = [("model", "whisper-1"), ("response_format", response_format)]
        if response_format == "verbose_json":
            fields += [("timestamp_granularities[]", kind) for kind in ("word", "segment")]
        parts = [
            f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields
        ]
        parts.append('--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n')
        form = "".join(parts).encode() + _wav() + b"\r\n--x--\r\n"
        shape = f"{response_format} of {TRANSCRIPT_S / 3600:g} h"
        yield Message(shape, "", _posted(FORM, _chunk(form), "connection: close\r\n"), WRITTEN_S)


def _wav() -> bytes:
    """Return a second of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(16_000)
        writer.writeframes(bytes(32_000))
    return file.getvalue()


def frame(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """Write a WebSocket frame of a client, with a mask that changes nothing."""
    size = len(payload)
    if size < 126:
        length = bytes([size | 0x80])
    elif size < 2**16:
        length = bytes([126 | 0x80]) + size.to_bytes(2, "big")
    else:
        length = bytes([127 | 0x80]) + size.to_bytes(8, "big")
    return bytes([opcode | FINAL * final]) + length + bytes(4) + payload


def _json(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def _posted(media_type: str, chunks: bytes, headers: str = "") -> bytes:
    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: a\r\ncontent-type: {media_type}\r\n{headers}"
    return head.encode() + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


async def _send(address: str, message: Message) -> None:
    """Send a message and take what is answered, until nothing comes any more."""
    reader, writer = await _opened(address)
    try:
        if message.path:
            writer.write(
                f"GET {message.path} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
                "sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n".encode()
            )
            await reader.readuntil(b"\r\n\r\n")
        taking = asyncio.create_task(_take(reader, message.silent_s))
        with suppress(ConnectionError, TimeoutError):
            writer.write(message.content)
            async with asyncio.timeout(SENT_S):
                await writer.drain()
        await taking
    finally:
        writer.transport.abort()


async def _take(reader: StreamReader, silent_s: float) -> None:
    """Read until the end, or until nothing has come for a moment."""
    with suppress(ConnectionError, TimeoutError):
        while True:
            async with asyncio.timeout(silent_s):
                if not await reader.read(2**16):
                    return


@asynccontextmanager
async def _probing(address: str) -> AsyncIterator[list[float]]:
    """Ask for little again and again, and give how long each answer took, in milliseconds."""
    delays_ms: list[float] = []
    reader, writer = await _opened(address)

    async def ask() -> None:
        while True:
            began_s = monotonic()
            writer.write(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
            await reader.readuntil(b'"ok"}')
            delays_ms.append((monotonic() - began_s) * 1_000)
            await asyncio.sleep(PROBE_EVERY_S)

    asking = asyncio.create_task(ask())
    try:
        yield delays_ms
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        writer.transport.abort()


async def _opened(address: str) -> tuple[StreamReader, StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))
