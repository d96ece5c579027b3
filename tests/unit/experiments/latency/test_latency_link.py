"""The delaying proxy of the laboratory's link."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

import pytest

from experiments.latency.link import ProxyLink, open_link
from specwhisper.errors import InvalidRequest


async def test_a_proxy_delays_both_directions_and_changes_open_connections():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with ExitStack() as stack:
            link = ProxyLink(stack)
            host, _, proxy_port = link.route_to(f"127.0.0.1:{port}").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(proxy_port))
            for round_trip_s in (0.05, 0.0, 0.1):
                await asyncio.to_thread(link.set_round_trip, round_trip_s)
                started_s = time.monotonic()
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                assert time.monotonic() - started_s >= round_trip_s
            assert link.cpu_s() > 0
            writer.close()


def test_an_unknown_network_is_refused():
    with pytest.raises(InvalidRequest, match="choose one of proxy, tun"), open_link("moon"):
        pass
