"""A target in the draft server's own process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any

from specwhisper.engine.target_engine import TargetEngine
from specwhisper.errors import ServerDraining
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.options import DecodingOptions
from specwhisper.types import (
    AudioChunk,
    Commit,
    Failed,
    Finished,
    Mode,
    Timing,
    WindowOpened,
)
from specwhisper.wire.pacing import PIECE_BYTES
from specwhisper_draft_server.transcriber import ANY, Message, Requirements, TargetDescription

ADDRESS = "in this process"


class LocalTargetStream:
    """A session's stream to a target in this process; see :class:`TargetStream`."""

    address = ADDRESS
    min_round_trip_ns = 0
    piece_bytes = PIECE_BYTES

    def __init__(
        self,
        session_id: str,
        target: TargetDescription,
        engine: TargetEngine,
        events: asyncio.Queue[Any],
        note: Callable[[object], None],
    ) -> None:
        self.target = target
        self._note = note
        self.limits = engine.verifier.limits
        self._id = session_id
        self._engine = engine
        self._events = events
        self.going_away = asyncio.Event()  # never set: both are in one process
        self.on_answer: Callable[[Timing], None] = lambda _: None

    def send(self, message: Message) -> None:
        self._note(message)
        self._engine.thread.post(partial(self._engine.verifier.submit, self._id, message, perf_counter_ns()))

    async def send_audio(self, chunk: AudioChunk) -> None:
        self._note(chunk)
        await self._engine.thread.call(partial(self._engine.verifier.submit, self._id, chunk))

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        while not isinstance(event := await self._events.get(), Finished):
            if isinstance(event, Failed):
                raise event.error
            yield event

    def leave(self) -> None:
        """End the stream as if the target were lost."""
        self._events.put_nowait(Failed(ServerDraining("The session has left its target.")))


class LocalTranscriber:
    """A target in this process; see :class:`Transcriber`.

    Parameters
    ----------
    note : called with each message to the target.
    """

    address = ADDRESS

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine: TargetEngine,
        note: Callable[[object], None] = lambda message: None,
    ) -> None:
        self._checkpoint = checkpoint
        self._engine = engine
        self._note = note

    def known(self, requirements: Requirements = ANY) -> TargetDescription | None:
        """Return ``None``: :meth:`describe` needs no round trip."""
        return None

    async def describe(self, requirements: Requirements = ANY) -> TargetDescription:
        return TargetDescription(
            model=self._checkpoint.name,
            weights_digest=self._checkpoint.weights_digest,
            vocabulary=self._checkpoint.vocabulary,
            num_mel_bins=self._checkpoint.num_mel_bins,
            limits=self._engine.verifier.limits,
        )

    @asynccontextmanager
    async def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        same_weights: bool = False,
        avoid: str = "",
        within_s: float | None = None,
    ) -> AsyncIterator[LocalTargetStream]:
        own_id = f"{session_id}-{secrets.token_hex(4)}"  # one may open before the last one is left
        async with self._engine.session(own_id, mode, options) as events:
            yield LocalTargetStream(own_id, target, self._engine, events, self._note)

    async def find_room(
        self,
        target: TargetDescription | None = None,
        *,
        same_weights: bool = False,
    ) -> LocalTranscriber:
        """Return this target; raise :class:`ServerFull` if it has no room."""
        await self._engine.check_room()
        return self

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def close(self) -> None:
        await self._engine.stop()
