"""The proxy forwards all bytes in order; it can freeze, reset and close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from experiments.common.servers.proxy import CHUNK_BYTES, Proxy

SENT = bytes(range(256)) * 512


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Proxy, list[bytes]]]:
    """Yield a proxy before an echo server, and what the server received."""
    received: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                received.append(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with Proxy.listening() as proxy:
        host, port = server.sockets[0].getsockname()
        proxy.upstream = f"{host}:{port}"
        yield proxy, received
    server.close()


async def connected(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = proxy.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def test_delayed_bytes_arrive_completely():
    async with echoing() as (proxy, received):
        proxy.latency_ms, proxy.jitter_ms, proxy.bytes_per_s = 2.0, 2.0, 20_000_000.0
        reader, writer = await connected(proxy)
        writer.write(SENT)
        assert await reader.readexactly(len(SENT)) == SENT
        assert b"".join(received) == SENT
        writer.close()


async def test_frozen_bytes_arrive_after_unfreezing():
    async with echoing() as (proxy, received):
        reader, writer = await connected(proxy)
        proxy.freeze()
        writer.write(SENT[:CHUNK_BYTES])
        reading = asyncio.create_task(reader.readexactly(CHUNK_BYTES))
        done, _ = await asyncio.wait((reading,), timeout=0.05)
        assert not done and not received
        proxy.unfreeze()
        assert await reading == SENT[:CHUNK_BYTES]
        writer.close()


async def test_a_reset_ends_both_sides_and_repeats_no_bytes():
    async with echoing() as (proxy, received):
        reader, writer = await connected(proxy)
        writer.write(b"once")
        assert await reader.readexactly(4) == b"once"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        assert (received, proxy.num_reset) == ([b"once"], 1)
        reader, writer = await connected(proxy)
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        writer.close()


async def test_a_connection_is_reset_at_the_byte_limit():
    async with echoing() as (proxy, received):
        proxy.bytes_left = CHUNK_BYTES
        reader, writer = await connected(proxy)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            writer.write(SENT)
            await reader.readexactly(len(SENT))
        assert sum(map(len, received)) <= CHUNK_BYTES
        assert proxy.num_reset == 1


async def test_connections_without_upstream_are_closed():
    async with echoing() as (proxy, _):
        proxy.upstream = None
        reader, writer = await connected(proxy)
        assert await reader.read() == b""
        writer.close()


async def test_upstreams_are_used_in_turn():
    received = {"first": 0, "second": 0}

    def answering(name: str):
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received[name] += 1
            writer.write(b"yes")
            writer.close()

        return answer

    servers = [await asyncio.start_server(answering(name), "127.0.0.1", 0) for name in received]
    async with Proxy.listening() as proxy:
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        proxy.upstream = ",".join(f"127.0.0.1:{port}" for port in ports)
        for _ in range(4):
            reader, writer = await connected(proxy)
            assert await reader.read() == b"yes"
            writer.close()
    for server in servers:
        server.close()
    assert received == {"first": 2, "second": 2}
