"""``python -m experiments.latency.networks.proxy HOST PORT``: a TCP proxy that delays what passes it.

It needs no privilege. What it delays are bytes, not packets: a connection's own windows and retransmissions
never see the delay, so it tells nothing of slow starts, loss or reordering; before a narrow line they wait.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from math import inf
from typing import Any

from experiments.latency.networks.conditions import Conditions, Way
from experiments.latency.networks.machinery import Orders, tell

CHUNK_BYTES = 64 * 1024
MAX_CHUNKS = 1024  # on their way in one direction; who sends more has to wait


class Proxy:
    """Connects whoever comes with one address, both ways delayed."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = host, port
        self._conditions = Conditions()
        self._seed = 0
        self._num_ways = 0
        self._generation = 0
        self._running: set[asyncio.Task[Any]] = set()

    def change(self, conditions: Conditions, seed: int) -> None:
        """Delay like this what arrives from now on, on open connections too."""
        self._conditions, self._seed = conditions, seed
        self._generation += 1

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until both ends have closed it."""
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.close()
            return
        no_delay(writer)
        no_delay(far_writer)
        ways = (self._pass(reader, far_writer), self._pass(far_reader, writer))
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(*(self._start(way) for way in ways))
        for each in (writer, far_writer):
            each.close()

    def _start(self, way: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(way)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take chunks as they come, and hand each on when it is due."""
        self._num_ways += 1
        number, generation, way = self._num_ways, -1, Way(Conditions(), 0)
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_CHUNKS)

        async def hand_on() -> None:
            while True:
                due_s, chunk = await chunks.get()
                if (delay_s := due_s - loop.time()) > 0:
                    await asyncio.sleep(delay_s)
                if not chunk:
                    if writer.can_write_eof():
                        writer.write_eof()
                    return
                writer.write(chunk)
                await writer.drain()

        handing = self._start(hand_on())
        last_s = 0.0
        try:
            chunk = b" "
            while chunk:
                chunk = await reader.read(CHUNK_BYTES)
                if generation != self._generation:
                    generation = self._generation
                    way = Way(self._conditions, self._seed + number, max_queue_s=inf)
                leaves_s = way.leaves_s(loop.time(), len(chunk))
                # Streams keep their order, also when they are told to be faster.
                last_s = max(last_s, loop.time() if leaves_s is None else leaves_s)
                await chunks.put((last_s, chunk))
            await handing
        finally:
            handing.cancel()


def no_delay(writer: asyncio.StreamWriter) -> None:
    """Send small pieces at once."""
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def serve(host: str, port: int) -> None:
    """Listen on a free port, say which, and go on until the input ends."""
    proxy, over = Proxy(host, port), asyncio.Event()
    server = await asyncio.start_server(proxy.connect, "127.0.0.1", 0)
    orders = Orders(proxy.change)
    loop = asyncio.get_running_loop()
    loop.add_reader(0, lambda: None if orders.read() else over.set())
    tell({"port": server.sockets[0].getsockname()[1]})
    await over.wait()
    loop.remove_reader(0)
    server.close()


if __name__ == "__main__":
    # epoll counts in milliseconds, select in microseconds.
    factory = lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())  # noqa: E731
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(sys.argv[1], int(sys.argv[2])))
