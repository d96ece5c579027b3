"""A TCP proxy that delays, slows, freezes, corrupts or resets connections."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

CHUNK_BYTES = 16_384
PACKET_BYTES, SLEEP_S = 1_448, 0.02  # a slow link's packet; sleeps are at least this long
MAX_QUEUED = 64  # chunks in transit; then TCP makes the sender wait
NO_FRAME = b"\xff" * 32  # start of an HTTP/2 frame longer than allowed
HEADER_BYTES, LENGTH_BYTES = 9, 3  # an HTTP/2 frame's header begins with its length (RFC 9113, 4.1)
RESET = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send RST


class Frames:
    """Tracks the ends of a server's frames in one direction of an HTTP/2 connection.

    Attributes
    ----------
    num_missing : missing bytes of the current frame, as far as known; 0 between frames.
    is_last : whether the current frame is the last to let through.
    """

    def __init__(self) -> None:
        self.num_missing = 0
        self.is_last = False
        self._header = b""

    def take(self, data: bytes) -> int | None:
        """Process bytes; return the position after the last frame, or ``None`` before its end."""
        position = 0
        while True:
            if self.is_last and not self.num_missing:
                return position
            if position == len(data):
                return None
            if not self.num_missing:
                self.num_missing = HEADER_BYTES
            piece = data[position : position + self.num_missing]
            position += len(piece)
            self.num_missing -= len(piece)
            if len(self._header) < HEADER_BYTES:
                self._header += piece
                if self.num_missing:
                    continue
                self.num_missing = int.from_bytes(self._header[:LENGTH_BYTES], "big")
            if not self.num_missing:
                self._header = b""


class Proxy:
    """Forwards connections on its own port to another server, which may change.

    Attributes
    ----------
    address : its own ``HOST:PORT``.
    upstream : ``HOST:PORT``, or several separated by commas, used in turn; ``None`` closes new connections.
    latency_ms, jitter_ms : delay of each direction; order is kept.
    bytes_per_s : bandwidth of each direction of a connection; 0 is unlimited.
    bytes_left : bytes of all connections until they are reset; ``None`` is unlimited.
    num_reset : number of connections reset.
    num_accepted : number of connections opened.
    num_held : bytes that were taken and not sent on yet.
    """

    def __init__(self) -> None:
        self.address = ""
        self.upstream: str | None = None
        self.latency_ms = self.jitter_ms = 0.0
        self.bytes_per_s = 0.0
        self.bytes_left: int | None = None
        self.num_reset = self.num_accepted = self.num_held = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._frames: dict[asyncio.StreamWriter, Frames] = {}

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[Self]:
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

    def freeze(self) -> None:
        """Stop all traffic, ends of streams included: both sides still see a connection."""
        self._flows.clear()

    def unfreeze(self) -> None:
        self._flows.set()

    def reset(self) -> None:
        for task, writers in list(self._open.items()):
            self.num_reset += 1
            for writer in writers:
                _abort(writer)
            task.cancel()

    def garble(self) -> None:
        """Send invalid HTTP/2 to the side that opened each connection, after its current frame.

        Within a frame it could pass as its contents, which only encryption detects.
        """
        for writer, frames in self._frames.items():
            frames.is_last = True
            if not frames.num_missing:
                writer.write(NO_FRAME)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A connection must be served by a task.")
        self._open[task] = (writer,)
        try:
            if self.upstream is None:
                return
            addresses = self.upstream.split(",")
            host, _, port = addresses[self.num_accepted % len(addresses)].rpartition(":")
            self.num_accepted += 1
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self._open[task] = (writer, far_writer)
            self._frames[writer] = Frames()
            async with asyncio.TaskGroup() as group:
                for source, sink in ((reader, far_writer), (far_reader, writer)):
                    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_QUEUED)
                    group.create_task(self._receive(source, queue))
                    group.create_task(self._send(queue, sink))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass  # one side has closed, or it was reset: close the other side
        finally:
            for each in self._open.pop(task):
                self._frames.pop(each, None)
                each.close()

    async def _receive(self, source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        clock = asyncio.get_running_loop().time
        due_s, data = 0.0, b"first"
        while data:
            try:
                data = await source.read(CHUNK_BYTES)
            except ConnectionError:
                data = b""
            delay_ms = max(0.0, random.gauss(self.latency_ms, self.jitter_ms)) if self.latency_ms else 0.0
            due_s = max(due_s, clock() + delay_ms / 1_000)
            self.num_held += len(data)
            await queue.put((due_s, data))

    async def _send(self, queue: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due_s, data = await queue.get()
            await asyncio.sleep(max(0.0, due_s - clock()))
            while self.bytes_per_s and len(data) > (
                size := max(PACKET_BYTES, int(SLEEP_S * self.bytes_per_s))
            ):
                await self._pass_on(data[:size], sink)
                data = data[size:]
            await self._pass_on(data, sink)

    async def _pass_on(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        if self.bytes_per_s:
            await asyncio.sleep(len(data) / self.bytes_per_s)
        await self._flows.wait()
        if not data:
            raise ConnectionResetError("One side has closed.")  # ends both directions
        if self.bytes_left is not None:
            self.bytes_left -= len(data)
            if self.bytes_left < 0:
                self.bytes_left = None
                self.reset()
                return
        self.num_held -= len(data)
        frames = self._frames.get(sink)
        if frames is not None and (whole := frames.take(data)) is not None:
            sink.write(data[:whole] + NO_FRAME)
            await asyncio.Event().wait()  # until the peer closes the connection
        sink.write(data)
        await sink.drain()


def _abort(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
