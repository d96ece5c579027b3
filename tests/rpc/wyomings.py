"""Run Wyoming servers for tests, and call them with the package's own client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wyoming.asr import Transcribe
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.event import Event, Eventable

from specwhisper_wyoming.config import WyomingConfig
from specwhisper_wyoming.server import WyomingServer

RATE = 16_000
PIECE_BYTES = 6_400
WITHIN_S = 30.0


@asynccontextmanager
async def wyoming_server(draft: str, **settings) -> AsyncIterator[WyomingServer]:
    """Serve on a free port until the end of the body."""
    config = WyomingConfig(**{"uri": "tcp://127.0.0.1:0", "server": draft, "drain_timeout_s": 0.0} | settings)
    server = WyomingServer(config)
    serving = asyncio.create_task(server.serve())
    try:
        ready = asyncio.create_task(server.ready.wait())
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            ready.cancel()
            serving.result()
        yield server
    finally:
        server.stop()
        await serving


@asynccontextmanager
async def client_of(server: WyomingServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient.from_uri(server.address, read_timeout=WITHIN_S) as client:
        yield client


async def send(client: AsyncClient, *events: Eventable) -> None:
    for event in events:
        await client.write_event(event.event())


async def say(
    client: AsyncClient,
    pcm: bytes,
    request: Transcribe | None = None,
    *,
    rate: int = RATE,
    width: int = 2,
    channels: int = 1,
) -> None:
    """Send an utterance as Home Assistant does: all of it, then read."""
    await send(client, request or Transcribe(language="en"), AudioStart(rate, width, channels))
    for start in range(0, len(pcm), PIECE_BYTES):
        await send(client, AudioChunk(rate, width, channels, pcm[start : start + PIECE_BYTES]))
    await send(client, AudioStop())


async def answer(client: AsyncClient) -> list[Event]:
    """Read the events of an answer, up to its end or the connection's."""
    events: list[Event] = []
    while (event := await client.read_event()) is not None:
        events.append(event)
        if event.type == "transcript-stop":
            break
    return events


def chunks_of(events: list[Event]) -> str:
    return "".join(event.data["text"] for event in events if event.type == "transcript-chunk")


def transcript_of(events: list[Event]) -> str:
    [text] = [event.data["text"] for event in events if event.type == "transcript"]
    return text
