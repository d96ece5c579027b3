"""A bad TCP connection: late, slow, silent, or reset; between servers that know nothing of it."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

from experiments.common.network.frames import Frames

CHUNK_BYTES = 16_384
MAX_QUEUED = 64  # chunks on their way, behind which TCP makes the sender wait
NO_FRAME = b"\xff" * 32  # begins an HTTP/2 frame that is longer than any may be
RESET = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send RST


class Proxy:
    """Listens on a port of its own and leads to another server, which may change.

    Attributes
    ----------
    address : where it listens.
    leads_to : ``HOST:PORT``, or several with commas between, which take turns; ``None`` closes what comes.
    latency_ms, jitter_ms : of each direction, in which nothing overtakes.
    bytes_per_s : of each connection's direction; 0 for as fast as it goes.
    bytes_left : after so many, of all together, connections are reset; ``None`` for never.
    num_reset : connections that it has reset.
    """

    def __init__(self) -> None:
        self.address = ""
        self.leads_to: str | None = None
        self.latency_ms = self.jitter_ms = 0.0
        self.bytes_per_s = 0.0
        self.bytes_left: int | None = None
        self.num_reset = 0
        self._num_led = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._frames: dict[asyncio.StreamWriter, Frames] = {}

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[Self]:
        """Keep one open."""
        proxy = cls()
        server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        proxy.address = f"{host}:{port}"
        try:
            yield proxy
        finally:
            server.close()
            proxy.reset()
            await asyncio.gather(*proxy._open, return_exceptions=True)

    def hold(self) -> None:
        """Let nothing through from now on, not even an end: both sides believe in the connection."""
        self._flows.clear()

    def release(self) -> None:
        """Let everything through again."""
        self._flows.set()

    def reset(self) -> None:
        """Reset all connections."""
        for task, writers in list(self._open.items()):
            self.num_reset += 1
            for writer in writers:
                _abort(writer)
            task.cancel()

    def garble(self) -> None:
        """Send what is no HTTP/2 on all connections, to the side that opened them, after its current frame.

        In the middle of one it could be taken for the frame's contents, which only encryption detects.
        """
        for writer, frames in self._frames.items():
            frames.is_last = True
            if not frames.num_missing:
                writer.write(NO_FRAME)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A connection is served by a task.")
        self._open[task] = (writer,)
        try:
            if self.leads_to is None:
                return
            addresses = self.leads_to.split(",")
            host, _, port = addresses[self._num_led % len(addresses)].rpartition(":")
            self._num_led += 1
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self._open[task] = (writer, far_writer)
            self._frames[writer] = Frames()
            async with asyncio.TaskGroup() as group:
                for source, sink in ((reader, far_writer), (far_reader, writer)):
                    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_QUEUED)
                    group.create_task(self._take(source, queue))
                    group.create_task(self._give(queue, sink))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass  # one of both has gone, so the other one is told; or it was reset
        finally:
            for each in self._open.pop(task):
                self._frames.pop(each, None)
                each.close()

    async def _take(self, source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        clock = asyncio.get_running_loop().time
        due_s, data = 0.0, b"first"
        while data:
            try:
                data = await source.read(CHUNK_BYTES)
            except ConnectionError:
                data = b""
            late_ms = max(0.0, random.gauss(self.latency_ms, self.jitter_ms)) if self.latency_ms else 0.0
            due_s = max(due_s, clock() + late_ms / 1_000)
            await queue.put((due_s, data))

    async def _give(self, queue: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due_s, data = await queue.get()
            await asyncio.sleep(max(0.0, due_s - clock()))
            if self.bytes_per_s:
                await asyncio.sleep(len(data) / self.bytes_per_s)
            await self._flows.wait()
            if not data:
                raise ConnectionResetError("One side has closed.")  # which ends both directions
            if self.bytes_left is not None:
                self.bytes_left -= len(data)
                if self.bytes_left < 0:
                    self.bytes_left = None
                    self.reset()
                    return
            frames = self._frames.get(sink)
            if frames is not None and (whole := frames.take(data)) is not None:
                sink.write(data[:whole] + NO_FRAME)
                await asyncio.Event().wait()  # until the connection is closed for that
            sink.write(data)
            await sink.drain()


def _abort(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
