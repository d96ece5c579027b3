"""Request heads over the limits are refused with 431, also on WebSockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateway.test_gateway_bounds import handshake
from tests.rpc.gateways import running_gateway

GET = "GET /samples HTTP/1.1\r\nHost: here\r\n"
TOO_LARGE = {
    "a long line": GET + f"X: {'x' * 9_000}\r\n",
    "many lines": GET + "".join(f"X-{number}: y\r\n" for number in range(101)),
    "large in all": GET + "".join(f"X-{number}: {'x' * 4_000}\r\n" for number in range(5)),
    "far too large": GET + "".join(f"X-{number}: {'x' * 4_000}\r\n" for number in range(50)),
    "a long URL": f"GET /samples?{'x' * 9_000} HTTP/1.1\r\nHost: here\r\n",
    "a WebSocket's": handshake("/live") + f"X: {'x' * 9_000}\r\n",
    "many lines of a WebSocket": handshake("/live") + "".join(f"X-{n}: y\r\n" for n in range(130)),
}


def at_once(head: bytes) -> Iterator[bytes]:
    yield head


def in_pieces(head: bytes) -> Iterator[bytes]:
    for start in range(0, len(head), 700):
        yield head[start : start + 700]


def after_another(head: bytes) -> Iterator[bytes]:
    yield (GET + "\r\n").encode() + head


@pytest.fixture
async def draft() -> AsyncIterator[str]:
    async with serving(ScriptedTranscription()) as address:
        yield address


def answer(address: str, pieces: Iterator[bytes]) -> bytes:
    """Send the pieces; return the answer, which may come before the last one."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        answered = b""
        while b"}}" not in answered:
            received = connection.recv(65_536)
            assert received, answered
            answered += received
    return answered


@pytest.mark.parametrize("arrive", [at_once, in_pieces, after_another])
@pytest.mark.parametrize("head", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_a_head_over_the_limits_is_refused(draft, head, arrive):
    async with running_gateway(draft) as gateway:
        answered = await asyncio.to_thread(answer, gateway.server.address, arrive(f"{head}\r\n".encode()))
    if arrive is after_another:
        assert answered.startswith(b"HTTP/1.1 200 ")
        answered = answered[answered.index(b"HTTP/1.1 431 ") :]
    assert answered.startswith(b"HTTP/1.1 431 ")
    assert json.loads(answered.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"


async def test_an_incomplete_head_is_refused_once_it_is_too_large(draft):
    head = f"{GET}X: {'x' * 20_000}".encode()
    async with running_gateway(draft) as gateway:
        answered = await asyncio.to_thread(answer, gateway.server.address, at_once(head))
    assert answered.startswith(b"HTTP/1.1 431 ")


async def test_a_head_within_the_limits_is_accepted(draft):
    headers = {f"X-{number}": "x" * 3_900 for number in range(4)}
    async with running_gateway(draft) as gateway:
        assert (await gateway.http.get("/samples", headers=headers)).status_code == 200
