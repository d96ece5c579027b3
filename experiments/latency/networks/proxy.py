"""``python -m experiments.latency.networks.proxy HOST PORT``: a TCP proxy that delays what it carries.

It needs no privileges. It delays bytes, not packets: TCP's windows and retransmissions never see the delay,
so it shows nothing of slow start, loss or reordering; a narrow line queues without limit.
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

from experiments.latency.networks.conditions import Conditions, Direction
from experiments.latency.networks.shaping_process import Commands, reply

CHUNK_BYTES = 64 * 1024
MAX_CHUNKS = 1024  # in transit in one direction; then the sender waits


class Proxy:
    """Connects every client to one address, with both directions delayed."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = host, port
        self._conditions = Conditions()
        self._seed = 0
        self._num_ways = 0
        self._generation = 0
        self._running: set[asyncio.Task[Any]] = set()

    def change(self, conditions: Conditions, seed: int) -> None:
        """Apply conditions to what arrives from now on, on open connections too."""
        self._conditions, self._seed = conditions, seed
        self._generation += 1

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection until both ends have closed it."""
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
        """Read chunks, and write each when it is due."""
        self._num_ways += 1
        number, generation, way = self._num_ways, -1, Direction(Conditions(), 0)
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_CHUNKS)

        async def write_due() -> None:
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

        writing = self._start(write_due())
        last_s = 0.0
        try:
            chunk = b" "
            while chunk:
                chunk = await reader.read(CHUNK_BYTES)
                if generation != self._generation:
                    generation = self._generation
                    way = Direction(self._conditions, self._seed + number, max_queue_s=inf)
                departure_s = way.departure_s(loop.time(), len(chunk))
                # A stream keeps its order when its delay is shortened.
                last_s = max(last_s, loop.time() if departure_s is None else departure_s)
                await chunks.put((last_s, chunk))
            await writing
        finally:
            writing.cancel()


def no_delay(writer: asyncio.StreamWriter) -> None:
    """Disable Nagle's algorithm."""
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def serve(host: str, port: int) -> None:
    """Listen on a free port, report it, and run until standard input closes."""
    proxy, over = Proxy(host, port), asyncio.Event()
    server = await asyncio.start_server(proxy.connect, "127.0.0.1", 0)
    commands = Commands(proxy.change)
    loop = asyncio.get_running_loop()
    loop.add_reader(0, lambda: None if commands.read() else over.set())
    reply({"port": server.sockets[0].getsockname()[1]})
    await over.wait()
    loop.remove_reader(0)
    server.close()


if __name__ == "__main__":
    # epoll rounds timeouts to milliseconds, select to microseconds.
    factory = lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())  # noqa: E731
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(sys.argv[1], int(sys.argv[2])))
