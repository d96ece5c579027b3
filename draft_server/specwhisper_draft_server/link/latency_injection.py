"""A target that seems to be further away: everything to and from it takes longer by so much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from specwhisper.transcription.transcriber import TargetDescription, TargetStream
from specwhisper.types import AudioChunk, Candidates, Commit, Limits, WindowOpened


class DelayedTargetStream:
    """A session on a target, behind a delay; for showing what distance does.

    Parameters
    ----------
    added_latency_ms : of the round trip; either way takes half of it.
    """

    def __init__(self, session: TargetStream, added_latency_ms: int) -> None:
        self._session = session
        self._one_way_s = added_latency_ms / 2000
        self._added_ns = added_latency_ms * 1_000_000
        self._up: asyncio.Queue[tuple[float, AudioChunk | Candidates]] = asyncio.Queue()
        self._down: asyncio.Queue[tuple[float, WindowOpened | Commit | None]] = asyncio.Queue()

    @property
    def target(self) -> TargetDescription:
        """What runs the session."""
        return self._session.target

    @property
    def limits(self) -> Limits:
        """What the session may send."""
        return self._session.limits

    @property
    def min_round_trip_ns(self) -> int:
        """The shortest round trip, the added one included; 0 where it was not measured."""
        measured_ns = self._session.min_round_trip_ns
        return measured_ns + self._added_ns if measured_ns else 0

    def propose(self, block: Candidates) -> None:
        """Send candidates on their way."""
        self._up.put_nowait((self._due_s(), block))

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Send audio on its way."""
        self._up.put_nowait((self._due_s(), chunk))

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Give what the target says, late."""
        tasks = [asyncio.create_task(self._carry_up()), asyncio.create_task(self._carry_down())]
        try:
            while True:
                due_s, event = await self._down.get()
                await self._until(due_s)
                if event is None:
                    break
                yield event
            for task in tasks:
                if task.done():
                    await task  # what has ended the session
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_up(self) -> None:
        try:
            while True:
                due_s, message = await self._up.get()
                await self._until(due_s)
                if isinstance(message, AudioChunk):
                    await self._session.send_audio(message)
                else:
                    self._session.propose(message)
        finally:
            self._down.put_nowait((0.0, None))

    async def _carry_down(self) -> None:
        try:
            async for event in self._session.events():
                self._down.put_nowait((self._due_s(), event))
        finally:
            self._down.put_nowait((self._due_s(), None))

    def _due_s(self) -> float:
        return asyncio.get_running_loop().time() + self._one_way_s

    @staticmethod
    async def _until(due_s: float) -> None:
        await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
