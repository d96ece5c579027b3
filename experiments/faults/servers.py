"""Servers in processes of their own, whose models fail on request, and proxies before them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Self

import torch

from experiments.common.serve_scripted import (
    ERROR_RATE,
    DraftSettings,
    PacedModel,
    TargetSettings,
)
from experiments.common.serve_scripted import serve_draft as serve_scripted_draft
from experiments.common.serve_scripted import serve_target as serve_scripted_target
from experiments.common.servers.forked import ForkedServer, Probes, Serve
from experiments.common.servers.proxy import Proxy
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row, Scores
from specwhisper.types import AudioChunk
from specwhisper.wire import codec
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.server import GatewayServer, serve_until_signal

NUM_SLOTS = 16
POLL_S = 0.002
WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Delays and faults of a model; 0 is never."""

    encode_ms: float = 0.0
    no_memory_every: int = 0  # forward passes of which the last one runs out of memory
    no_memory_to_receive_every: int = 0  # pieces of audio for the last of which the host has no memory
    fault_at: int = 0  # forward passes before the device fails
    fault_file: Path | None = None  # receives the time of that fault by the monotonic clock


@dataclass(frozen=True, slots=True)
class Target(TargetSettings):
    max_sessions: int = NUM_SLOTS
    pass_ms: float = 12.0
    behaviour: Behaviour = Behaviour()


@dataclass(frozen=True, slots=True)
class Draft(DraftSettings):
    max_sessions: int = NUM_SLOTS
    pass_ms: float = 2.0
    behaviour: Behaviour = Behaviour()


class WatchedModel(PacedModel):
    def __init__(self, settings: Target | Draft, probes: Probes, **kwargs: Any) -> None:
        super().__init__(settings.max_sessions, pass_ms=settings.pass_ms, **kwargs)
        self.is_encoding = self.is_scoring = False
        self.num_short = 0  # times that memory ran out
        self._behaviour = settings.behaviour
        probes["is_encoding"] = lambda: self.is_encoding
        probes["is_scoring"] = lambda: self.is_scoring
        probes["num_short"] = lambda: self.num_short

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self.is_encoding = True
        try:
            time.sleep(self._behaviour.encode_ms / 1_000)
            super().encode(slot, recording, start_frame)
        finally:
            self.is_encoding = False

    def score(self, rows: Sequence[Row]) -> list[Scores]:
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

    def receives_with_little_memory(self, no_memory_every: int) -> None:
        """Let the host run out of memory at every ``no_memory_every``-th piece of audio."""
        receive, num_received = codec.audio_chunk_from_proto, 0

        def receive_or_fail(message: pb.Audio, **limits: int) -> AudioChunk:
            nonlocal num_received
            num_received += 1
            if num_received % no_memory_every == 0:
                self.num_short += 1
                raise MemoryError
            return receive(message, **limits)

        codec.audio_chunk_from_proto = receive_or_fail


async def serve_target(settings: Target, probes: Probes) -> None:
    model = WatchedModel(settings, probes, seed=settings.seed)
    if settings.behaviour.no_memory_to_receive_every:
        model.receives_with_little_memory(settings.behaviour.no_memory_to_receive_every)
    await serve_scripted_target(settings, probes, model)


async def serve_draft(settings: Draft, probes: Probes) -> None:
    await serve_scripted_draft(settings, probes, WatchedModel(settings, probes, error_rate=ERROR_RATE))


async def serve_gateway(config: GatewayConfig, probes: Probes) -> None:
    server = GatewayServer(config)
    probes["sessions"] = lambda: server.num_transcriptions
    await serve_until_signal(server)


class Servers:
    """Starts servers and proxies, each ready when it is returned, and kills them at the end."""

    target_program: Serve = staticmethod(serve_target)
    draft_program: Serve = staticmethod(serve_draft)

    def __init__(self, logs: Path | None = None) -> None:
        self.all: list[ForkedServer] = []
        self.stack = AsyncExitStack()
        self._logs = logs

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.kill() for server in self.all))
        await self.stack.aclose()

    async def target(self, **settings: Any) -> ForkedServer:
        return await self._start(self.target_program, Target(**settings), "target")

    async def draft(self, *targets: str, **settings: Any) -> ForkedServer:
        return await self._start(self.draft_program, Draft(",".join(targets), **settings), "draft")

    async def gateway(self, draft: str, **settings: Any) -> ForkedServer:
        return await self._start(serve_gateway, GatewayConfig(server=draft, port=0, **settings), "gateway")

    async def pair(
        self, *, has_spare: bool = False, of_draft: Mapping[str, Any] = MappingProxyType({}), **of_target: Any
    ) -> tuple[ForkedServer, ForkedServer]:
        """Start a target, a spare if it has one, and a draft server whose sessions begin at the first."""
        targets = [await self.target(**of_target)]
        targets += [await self.target(max_sessions=NUM_SLOTS // 2)] if has_spare else []
        addresses = (target.address for target in targets)
        return targets[0], await self.draft(*addresses, chooses_emptiest=True, **of_draft)

    async def proxy(self, upstream: str | None = None) -> Proxy:
        """Open an address that leads to a server, or refuses connections until one is set."""
        proxy = await self.stack.enter_async_context(Proxy.listening())
        proxy.upstream = upstream
        return proxy

    async def num_held(self) -> int:
        """Count the sessions and slots of running servers, but for those whose start was given up."""
        running = [server for server in self.all if server.address and server.ended_s is None]
        held = [await server.probe("taken_slots", "sessions") for server in running]
        return sum(count for of_one in held for count in of_one.values())

    async def wait_held(self, most: int = 0, *, within_s: float = WITHIN_S) -> float:
        """Wait until no more is held, or for that time; return how long it took."""
        began_s = monotonic()
        while await self.num_held() > most and monotonic() - began_s < within_s:
            await asyncio.sleep(POLL_S)
        return monotonic() - began_s

    async def idle(self) -> None:
        """Wait until nothing is held and no model works for an ended session."""
        await self.wait_held()
        for server in self.all:
            while any((await server.probe("is_encoding", "is_scoring")).values()):
                await asyncio.sleep(POLL_S)

    async def _start(self, program: Serve, settings: Any, kind: str) -> ForkedServer:
        log = Path(os.devnull) if self._logs is None else self._logs / f"{len(self.all)}-{kind}.log"
        server = ForkedServer(program, settings, log)
        self.all.append(server)
        await server.ready()
        return server


async def until(server: ForkedServer, name: str, *, at_least: int = 1) -> None:
    """Wait until a server's probe reports so much; :class:`TimeoutError` if it never does."""
    async with asyncio.timeout(WITHIN_S):
        while (await server.probe(name))[name] < at_least:
            await asyncio.sleep(POLL_S)


class Peak:
    """The peak of a process's resident memory from now on."""

    def __init__(self, process: int) -> None:
        self._folder = Path(f"/proc/{process}")
        (self._folder / "clear_refs").write_text("5")  # the peak becomes what it holds now
        self._before = self._bytes("VmRSS")

    def growth_mib(self) -> float:
        return max(0, self._bytes("VmHWM") - self._before) / 2**20

    def _bytes(self, name: str) -> int:
        status = dict(line.split(":", 1) for line in (self._folder / "status").read_text().splitlines())
        return int(status[name].split()[0]) * 1024
