"""Run a gateway for a test's draft server on a free port, and its clients."""

import asyncio
import io
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import openai
import pytest
import soundfile
import websockets

from specwhisper.rpc.tokens import Tokens
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.server import GatewayServer
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.services import eventually

MODEL = "whisper-1"
CALLER = "anna"
# OpenAI's client warns that OpenAI's own translations end.
DEPRECATED = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")


def wav(length_s: float = 2.5) -> bytes:
    """Return a recording of noise."""
    samples = np.random.default_rng(0).integers(-3_000, 3_000, int(length_s * 16_000)).astype(np.int16)
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV")
    return file.getvalue()


# Clients of plain HTTP need no certificates, and reading the system's takes longer than most tests.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
WAV = wav()
RECORDING = ("talk.wav", WAV)


@dataclass(frozen=True)
class RunningGateway:
    """A gateway; ``api`` is OpenAI's own client, ``http`` one for all other requests."""

    server: GatewayServer
    api: openai.AsyncOpenAI
    http: openai.DefaultAsyncHttpxClient

    @property
    def url(self) -> str:
        return f"http://{self.server.address}"

    @property
    def num_sessions(self) -> int:
        return self.server.app.state.gateway.limiter.num_sessions

    def transcribe(self, **fields: Any) -> Awaitable[Any]:
        """Transcribe the recording with OpenAI's client; fields may name another one."""
        return self.api.audio.transcriptions.create(**({"file": RECORDING, "model": MODEL} | fields))

    async def figures(self, key: str = "none") -> dict[str, float]:
        """Return the metrics of /metrics by name and labels."""
        text = (await self.http.get("/metrics", headers={"Authorization": f"Bearer {key}"})).text
        found = re.findall(r"^(?!#)(\S+) (\S+)$", text, re.MULTILINE)
        return {name.removeprefix("specwhisper_gateway_"): float(value) for name, value in found}

    async def all_answered(self, key: str = "none") -> dict[str, float]:
        """Wait until no other request is open, and return the metrics."""
        await eventually(lambda: len(self.server.server_state.tasks) == 0)
        return await self.figures(key)


async def socket_refusal(url: str, **settings: Any) -> tuple[dict[str, Any], int | None]:
    """Return the error that a WebSocket is sent after it was accepted, and its close code."""
    async with websockets.connect(url, **settings) as socket:
        event = json.loads(await socket.recv())
        with pytest.raises(websockets.ConnectionClosed):
            await socket.recv()
    assert event["type"] == "error"
    return event["error"], socket.close_code


START = {"type": "start", "sample_rate": 16_000}


@asynccontextmanager
async def page(
    gateway: RunningGateway, start: dict[str, Any] | None = START
) -> AsyncIterator[websockets.ClientConnection]:
    """Open a WebSocket of the page, and send its first message."""
    async with websockets.connect(f"ws://{gateway.server.address}/live") as socket:
        if start is not None:
            await socket.send(json.dumps(start))
        yield socket


async def messages_of(socket: websockets.ClientConnection) -> tuple[list[Any], int | None]:
    """Return all messages until the end, and the close code."""
    messages = []
    with suppress(websockets.ConnectionClosedError):
        async for message in socket:
            messages.append(json.loads(message))
    return messages, socket.close_code


@asynccontextmanager
async def running_gateway(
    draft: str, *, port: int = 0, api_key: str | None = None, **settings: Any
) -> AsyncIterator[RunningGateway]:
    """Run a gateway for a draft server."""
    if api_key is not None:
        settings["tokens"] = Tokens({api_key: CALLER})
    server = GatewayServer(GatewayConfig(server=draft, port=port, **settings))
    async with server.running() as address:
        async with (
            openai.DefaultAsyncHttpxClient(base_url=f"http://{address}", verify=NO_CERTIFICATES) as http,
            openai.AsyncOpenAI(  # no retries, because tests count requests
                base_url=f"http://{address}/v1", api_key="any", max_retries=0, http_client=http
            ) as api,
        ):
            yield RunningGateway(server, api, http)


@asynccontextmanager
async def gateway_for(
    draft: ScriptedTranscription | None = None, **settings: Any
) -> AsyncIterator[RunningGateway]:
    """Run a gateway before a scripted draft server."""
    async with serving(draft or ScriptedTranscription()) as address:
        async with running_gateway(address, **settings) as gateway:
            yield gateway


def handshake(path: str) -> str:
    """Return the head of a WebSocket handshake, without the empty line at its end."""
    return (
        f"GET {path}?intent=transcription HTTP/1.1\r\nHost: here\r\n"
        "Connection: upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
    )


@asynccontextmanager
async def connected(
    gateway: RunningGateway,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = gateway.server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Return all bytes until the connection is closed or cut."""
    received = b""
    try:
        while piece := await reader.read(65_536):
            received += piece
    except ConnectionResetError:
        pass
    return received
