"""Servers in processes of their own, whose models fail on request, and proxies before them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Self

import torch

from experiments.common.models.scripted import scripted_checkpoint
from experiments.common.models.speech import SPOKEN_MULTILINGUAL, EnergyVad, SpeechOrNoiseModel
from experiments.common.servers.emptiest import choose_emptiest
from experiments.common.servers.forked import ForkedServer, Probes, Serve
from experiments.common.servers.proxy import Proxy
from specwhisper.audio.recording import Recording
from specwhisper.engine.process import prepare_process
from specwhisper.failpoints import VARIABLE, read_failpoints
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model, WhisperModel
from specwhisper.rpc.serving import serve
from specwhisper.types import AudioChunk, Limits
from specwhisper.wire import codec
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_draft_server import server as draft_server
from specwhisper_draft_server import voice_activity as voice
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.link import targets
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.server import GatewayServer, serve_until_signal
from specwhisper_target_server import server as target_server
from specwhisper_target_server.config import TargetConfig

NUM_SLOTS = 16
POLL_S = 0.002
WITHIN_S = 30.0
ERROR_RATE = 0.2  # share of wrong draft tokens


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Delays and faults of a model; 0 is never."""

    encode_ms: float = 0.0
    no_memory_every: int = 0  # forward passes of which the last one runs out of memory
    no_memory_to_receive_every: int = 0  # pieces of audio for the last of which the host has no memory
    fault_at: int = 0  # forward passes before the device fails
    fault_file: Path | None = None  # receives the time of that fault by the monotonic clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a target or draft server.

    Attributes
    ----------
    model : name of its model; by default it is scripted.
    seed, error_rate : choose a scripted model's text and how often it errs. The digest stays the same.
    weights : name of its weights, on which the digest depends.
    failpoints : as in the environment variable.
    chooses_emptiest : whether sessions of a draft server start at the target with the most free slots.
    config : further settings of the server's own configuration.
    """

    model: str = ""
    max_sessions: int = NUM_SLOTS
    pass_ms: float
    seed: int = 0
    error_rate: float = 0.0
    weights: str = "scripted"
    failpoints: str = ""
    behaviour: Behaviour = Behaviour()
    chooses_emptiest: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **settings: Any) -> Settings:
        """Split off what the server's own configuration takes."""
        names = {each.name for each in fields(cls)}
        own = {name: value for name, value in settings.items() if name in names}
        return cls(**own, config={name: value for name, value in settings.items() if name not in names})

    def open(self, probes: Probes) -> tuple[Checkpoint, Model]:
        """Return the checkpoint that clients see, and the model."""
        prepare_process("cpu", 1, None)
        if self.model:
            checkpoint = load_checkpoint(self.model)
            return checkpoint, WhisperModel(checkpoint, self.max_sessions)
        checkpoint = scripted_checkpoint(
            vocabulary=SPOKEN_MULTILINGUAL, weights_digest=f"digest of {self.weights}"
        )
        return checkpoint, WatchedModel(self, probes)


class WatchedModel(SpeechOrNoiseModel):
    def __init__(self, settings: Settings, probes: Probes) -> None:
        super().__init__(
            settings.max_sessions,
            vocabulary=SPOKEN_MULTILINGUAL,
            seed=settings.seed,
            error_rate=settings.error_rate,
        )
        self.is_encoding = self.is_scoring = False
        self.num_short = 0  # times that memory ran out
        self._pass_s = settings.pass_ms / 1_000
        self._behaviour = settings.behaviour
        if settings.behaviour.no_memory_to_receive_every:
            self._receive_with_little_memory(settings.behaviour.no_memory_to_receive_every)
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
            time.sleep(self._pass_s)
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

    def _receive_with_little_memory(self, no_memory_every: int) -> None:
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


async def serve_target(settings: Settings, probes: Probes) -> None:
    """Serve until a signal."""
    checkpoint, model = settings.open(probes)
    config = TargetConfig(
        limits=Limits(max_sessions=settings.max_sessions),
        port=0,
        failpoints=read_failpoints({VARIABLE: settings.failpoints}, "target"),
        **settings.config,
    )
    async with target_server.running_service(config, checkpoint, model) as service:
        probes["taken_slots"] = lambda: service.num_sessions
        await serve(target_server.services_of(service), config, on_drain=service.announce_drain)


async def serve_draft(settings: Settings, probes: Probes) -> None:
    """Serve until a signal; voice activity is any sound."""
    voice._model = EnergyVad
    if settings.chooses_emptiest:
        targets.choose = choose_emptiest  # type: ignore[assignment]
    checkpoint, model = settings.open(probes)
    failpoints = read_failpoints({VARIABLE: settings.failpoints}, "draft")
    config = DraftConfig(max_sessions=settings.max_sessions, port=0, failpoints=failpoints, **settings.config)

    def num_taken() -> int:
        drafter = getattr(service._drafting, "drafter", None)  # once the draft is placed
        return 0 if drafter is None else settings.max_sessions - drafter.num_free_slots

    async with draft_server.running_service(config, checkpoint, lambda _: model) as service:
        probes["sessions"] = lambda: service.num_sessions
        probes["hanging"] = lambda: failpoints.num_hanging if failpoints is not None else 0
        probes["taken_slots"] = num_taken
        await serve(draft_server.services_of(service, config), config, check_health=service.check_health)


async def serve_gateway(config: GatewayConfig, probes: Probes) -> None:
    server = GatewayServer(config)
    probes["sessions"] = lambda: server.num_transcriptions
    await serve_until_signal(server)


class Servers:
    """Starts servers and proxies, each ready when it is returned, and kills them at the end."""

    models = "", ""  # what targets and draft servers load; scripted models if empty

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
        settings = {"model": self.models[0], "pass_ms": 12.0} | settings
        return await self._start(serve_target, Settings.of(**settings), "target")

    async def draft(self, *targets: str, **settings: Any) -> ForkedServer:
        own = {"model": self.models[1], "pass_ms": 2.0, "error_rate": ERROR_RATE}
        own |= {"target": ",".join(targets), "weights": "scripted-draft"}
        return await self._start(serve_draft, Settings.of(**own | settings), "draft")

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
    """Wait until a server's probe reports a number; :class:`TimeoutError` if it never does."""
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
