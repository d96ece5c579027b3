"""Latency injection between draft and target, for experiments.

It is loaded only when a session requests it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from specwhisper.tasks import running
from specwhisper.types import AudioChunk, Commit, WindowOpened
from specwhisper_draft_server.link.resuming import OpenOnce
from specwhisper_draft_server.transcriber import Message, TargetDescription, TargetStream

Item = TypeVar("Item")


@asynccontextmanager
async def delayed(
    open_once: OpenOnce, added_latency_ms: int, target: TargetDescription, **wanted: Any
) -> AsyncIterator[DelayedTargetStream]:
    async with open_once(target, **wanted) as stream:
        yield DelayedTargetStream(stream, added_latency_ms)


class DelayedTargetStream:
    """A target stream whose messages arrive later, in both directions.

    ``added_latency_ms``: added to the round trip; each direction is delayed by half of it.
    """

    def __init__(self, stream: TargetStream, added_latency_ms: int) -> None:
        self._stream = stream
        self.address, self.target, self.limits = stream.address, stream.target, stream.limits
        self.going_away, self.leave = stream.going_away, stream.leave
        self._one_way_s = added_latency_ms / 2000
        self._added_ns = added_latency_ms * 1_000_000
        self._up: asyncio.Queue[tuple[float, AudioChunk | Message]] = asyncio.Queue()
        self._down: asyncio.Queue[tuple[float, WindowOpened | Commit | None]] = asyncio.Queue()

    @property
    def piece_bytes(self) -> int:
        return self._stream.piece_bytes

    @property
    def min_round_trip_ns(self) -> int:
        measured_ns = self._stream.min_round_trip_ns
        return measured_ns + self._added_ns if measured_ns else 0

    def send(self, message: Message) -> None:
        self._up.put_nowait((self._due_s(), message))

    async def send_audio(self, chunk: AudioChunk) -> None:
        self._up.put_nowait((self._due_s(), chunk))

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        async with running(self._carry_up(), self._carry_down()) as tasks:
            while True:
                event = await _due(self._down)
                if event is None:
                    break
                yield event
            for task in tasks:
                if task.done():
                    await task  # raises the error that ended the stream

    async def _carry_up(self) -> None:
        try:
            while True:
                message = await _due(self._up)
                if isinstance(message, AudioChunk):
                    await self._stream.send_audio(message)
                else:
                    self._stream.send(message)
        finally:
            self._down.put_nowait((0.0, None))

    async def _carry_down(self) -> None:
        try:
            async for event in self._stream.events():
                self._down.put_nowait((self._due_s(), event))
        finally:
            self._down.put_nowait((self._due_s(), None))

    def _due_s(self) -> float:
        return asyncio.get_running_loop().time() + self._one_way_s


async def _due(queue: asyncio.Queue[tuple[float, Item]]) -> Item:
    """Return the next item of a queue, once the time with it has come."""
    due_s, item = await queue.get()
    await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
    return item
