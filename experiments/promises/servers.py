"""Servers whose models report what they do, take a given time, and fail on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import torch

from experiments.common.serve_scripted import (
    ERROR_RATE,
    DraftSettings,
    PacedModel,
    TargetSettings,
    serve_draft,
    serve_target,
)
from experiments.common.servers.forked import ForkedServer, Probes
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row, Scores
from specwhisper.types import AudioChunk
from specwhisper.wire import codec
from specwhisper.wire.v1 import verification_pb2 as pb

NUM_SLOTS = 16
PASS_MS = 12.0
TARGET = TargetSettings(max_sessions=NUM_SLOTS, pass_ms=PASS_MS)
SPARE = TargetSettings(max_sessions=NUM_SLOTS // 2, pass_ms=PASS_MS)  # sessions begin at the other one
POLL_S = 0.002
WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Delays and faults of a model.

    Attributes
    ----------
    encode_ms : that an encoding takes.
    no_memory_every : passes of which the last one runs out of memory; 0 for never.
    no_memory_to_receive_every : pieces of audio for the last of which the host has no memory; 0 for never.
    fault_at : number of forward passes before the device fails; 0 for never.
    fault_file : where the moment of that fault is noted, by the monotonic clock of all processes.
    """

    encode_ms: float = 0.0
    no_memory_every: int = 0
    no_memory_to_receive_every: int = 0
    fault_at: int = 0
    fault_file: Path | None = None


class WatchedModel(PacedModel):
    """A model that reports what it does."""

    def __init__(
        self, num_slots: int, behaviour: Behaviour, *, pass_ms: float, error_rate: float = 0.0
    ) -> None:
        super().__init__(num_slots, pass_ms=pass_ms, error_rate=error_rate)
        self.is_encoding = self.is_scoring = False
        self.num_short = 0  # times that memory ran out
        self._behaviour = behaviour

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot and encode a window into it."""
        self.is_encoding = True
        try:
            time.sleep(self._behaviour.encode_ms / 1_000)
            super().encode(slot, recording, start_frame)
        finally:
            self.is_encoding = False

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose a token after each candidate."""
        self.is_scoring = True
        try:
            scores = super().score(rows)
        finally:
            self.is_scoring = False
        behaviour = self._behaviour
        if behaviour.fault_at and self.num_forwards == behaviour.fault_at:
            if behaviour.fault_file is not None:
                behaviour.fault_file.write_text(repr(monotonic()))
            raise RuntimeError("CUDA error: device-side assert triggered")
        if behaviour.no_memory_every and self.num_forwards % behaviour.no_memory_every == 0:
            self.num_short += 1
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return scores

    def add_to(self, probes: Probes) -> None:
        """Let it be asked what it does."""
        probes["is_encoding"] = lambda: self.is_encoding
        probes["is_scoring"] = lambda: self.is_scoring
        probes["num_short"] = lambda: self.num_short


class _Receiving:
    """Receives pieces of audio; for every so many-th of them the host has no memory."""

    def __init__(self, model: WatchedModel, no_memory_every: int) -> None:
        self._receive = codec.audio_chunk_from_proto
        self._model = model
        self._no_memory_every = no_memory_every
        self._num_received = 0

    def __call__(self, message: pb.Audio, **limits: int) -> AudioChunk:
        self._num_received += 1
        if self._num_received % self._no_memory_every == 0:
            self._model.num_short += 1
            raise MemoryError
        return self._receive(message, **limits)


async def serve_watched_target(settings: tuple[TargetSettings, Behaviour], probes: Probes) -> None:
    """Serve a target until a signal."""
    serving, behaviour = settings
    model = WatchedModel(serving.max_sessions, behaviour, pass_ms=serving.pass_ms)
    model.add_to(probes)
    if behaviour.no_memory_to_receive_every:
        codec.audio_chunk_from_proto = _Receiving(model, behaviour.no_memory_to_receive_every)
    await serve_target(serving, probes, model)


async def serve_watched_draft(settings: tuple[DraftSettings, Behaviour], probes: Probes) -> None:
    """Serve a draft until a signal."""
    serving, behaviour = settings
    num_slots = 2 * serving.max_sessions
    model = WatchedModel(num_slots, behaviour, pass_ms=serving.pass_ms, error_rate=ERROR_RATE)
    model.add_to(probes)
    await serve_draft(serving, probes, model)


@dataclass(frozen=True, slots=True)
class Pair:
    """A draft server and its targets, of which sessions begin at the first."""

    targets: tuple[ForkedServer, ...]
    draft: ForkedServer

    async def held(self) -> tuple[int, ...]:
        """Count the sessions and slots that both servers hold."""
        target = await self.targets[0].probe("taken_slots")
        draft = await self.draft.probe("sessions", "taken_slots")
        return target["taken_slots"], draft["sessions"], draft["taken_slots"]

    async def idle(self) -> None:
        """Wait until nothing is held and no model works for an ended session."""
        await self.wait_held((0, 0, 0))
        for process in (*self.targets, self.draft):
            while any((await process.probe("is_encoding", "is_scoring")).values()):
                await asyncio.sleep(POLL_S)

    async def wait_held(self, most: Sequence[int]) -> float:
        """Wait until at most this much is held; return the time."""
        began_s = monotonic()
        while any(count > bound for count, bound in zip(await self.held(), most, strict=True)):
            if monotonic() - began_s > WITHIN_S:
                break
            await asyncio.sleep(POLL_S)
        return monotonic() - began_s


@asynccontextmanager
async def running_pair(
    *targets: tuple[TargetSettings, Behaviour],
    draft: Behaviour = Behaviour(),
    draft_pass_ms: float = 2.0,
    max_sessions: int = NUM_SLOTS,
    idle_timeout_s: float = 60.0,
    max_audio_s: float = 3600.0,
) -> AsyncIterator[Pair]:
    """Keep a draft server and targets running."""
    started: list[ForkedServer] = []
    try:
        started += [ForkedServer(serve_watched_target, settings) for settings in targets]
        addresses = ",".join([await target.ready() for target in started])
        settings = DraftSettings(
            addresses,
            max_sessions=max_sessions,
            pass_ms=draft_pass_ms,
            idle_timeout_s=idle_timeout_s,
            max_audio_s=max_audio_s,
            chooses_emptiest=True,  # that of the first targets, where there are several
        )
        started.append(ForkedServer(serve_watched_draft, (settings, draft)))
        await started[-1].ready()
        yield Pair(tuple(started[:-1]), started[-1])
    finally:
        await asyncio.gather(*(process.kill() for process in started))


async def until(process: ForkedServer, name: str, *, at_least: int = 1) -> None:
    """Wait until a server reports it; :class:`TimeoutError` if it never does."""
    async with asyncio.timeout(WITHIN_S):
        while (await process.probe(name))[name] < at_least:
            await asyncio.sleep(POLL_S)
