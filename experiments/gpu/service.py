"""A target on the GPU behind gRPC, and what it carries with drafts and without."""

from __future__ import annotations

import multiprocessing
import time
from asyncio import gather, get_running_loop
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from experiments.common.replay.model import ReplayTarget
from experiments.gpu.clients import Heard, Load, be_ready, play, sessions, until
from experiments.gpu.texts import Texts
from experiments.gpu.weights import Weights
from specwhisper.engine.local import TargetEngine
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import WhisperModel
from specwhisper.rpc.calls import CallInterceptor, OpenCalls
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.types import DEFAULT_MAX_WIDTH, Limits, Mode
from specwhisper.wire.v1.verification_pb2_grpc import add_VerificationServicer_to_server
from specwhisper_target_server.service import VerificationService

MODES = (Mode.TARGET_ONLY, Mode.SYNC, Mode.FULL)
LEAD_S, QUICK_LEAD_S = 4.0, 0.4  # until all sessions are under way


@dataclass(frozen=True, slots=True)
class Carried:
    """So many sessions in one mode.

    Attributes
    ----------
    forward_s, num_forwards, num_rows : of the target's passes in the period; a session's part is a row.
    """

    shape: str
    dtype: str
    mode: str
    num_sessions: int
    acceptance: float
    period_s: float
    num_tokens: int
    num_passes: int
    num_texts: int
    num_different: int
    failures: tuple[str, ...]
    forward_s: float
    num_forwards: int
    num_rows: int

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens of all sessions, encoder and messages included."""
        return self.num_tokens / self.period_s

    @property
    def tokens_per_forward_s(self) -> float:
        """Committed tokens per second of the target's passes."""
        return self.num_tokens / self.forward_s if self.forward_s else 0.0


class Metered(ReplayTarget):
    """A target that counts its passes."""

    forward_s = 0.0
    num_forwards = 0
    num_rows = 0

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Do the whole pass, and count it."""
        started_s = time.perf_counter()
        scores = super().score(rows)
        self.forward_s += time.perf_counter() - started_s
        self.num_forwards += 1
        self.num_rows += len(rows)
        return scores

    def counts(self) -> tuple[float, int, int]:
        """Return the totals."""
        return self.forward_s, self.num_forwards, self.num_rows


@dataclass(frozen=True, slots=True)
class Service:
    """A target that serves, and those who play its sessions.

    Attributes
    ----------
    pool : processes that play, ``num_processes`` of them; ``None`` plays in this one.
    """

    weights: Weights
    texts: Texts
    dtype: str
    address: str
    model: Metered
    pool: ProcessPoolExecutor | None
    num_processes: int

    async def carry(self, mode: Mode, num_sessions: int, period_s: float) -> Carried:
        """Put sessions on the target, and count for a while what they come to."""
        begin_s = time.monotonic() + (QUICK_LEAD_S if self.weights.place.is_narrow else LEAD_S)
        end_s, num_parts = begin_s + period_s, min(max(1, self.num_processes), num_sessions)
        loads = [
            Load(self.address, self.texts, mode, range(part, num_sessions, num_parts), begin_s, end_s)
            for part in range(num_parts)
        ]
        playing = gather(*(self._play(load) for load in loads))
        await until(begin_s)
        before = self.model.counts()
        await until(end_s)
        spent = [now - then for now, then in zip(self.model.counts(), before, strict=True)]
        heard: list[Heard] = await playing
        return Carried(
            self.weights.name,
            self.dtype,
            mode.value,
            num_sessions,
            self.texts.acceptance,
            period_s,
            num_tokens=sum(one.num_tokens for one in heard),
            num_passes=sum(one.num_forwards for one in heard),
            num_texts=sum(one.num_texts for one in heard),
            num_different=sum(one.num_different for one in heard),
            failures=tuple(failure for one in heard for failure in one.failures),
            forward_s=spent[0],
            num_forwards=int(spent[1]),
            num_rows=int(spent[2]),
        )

    async def _play(self, load: Load) -> Heard:
        if self.pool is None:
            return await sessions(load)
        return await get_running_loop().run_in_executor(self.pool, play, load)


async def measure_service(
    weights: Weights,
    texts: Texts,
    levels: Sequence[int],
    *,
    dtype: str = "float16",
    period_s: float,
    num_processes: int,
    modes: Sequence[Mode] = MODES,
) -> list[Carried]:
    """Put more and more sessions on a target, in every mode; see :class:`Service`."""
    found = []
    async with _serving(weights, texts, max(levels), dtype, num_processes) as service:
        for num_sessions in levels:
            for mode in modes:
                found.append(await service.carry(mode, num_sessions, period_s))
    return found


@asynccontextmanager
async def _serving(
    weights: Weights, texts: Texts, num_slots: int, dtype: str, num_processes: int
) -> AsyncIterator[Service]:
    """Serve a replay target on the loopback interface."""
    checkpoint = weights.checkpoint(dtype)
    forward = WhisperModel(checkpoint, num_slots, has_static_shapes=True)
    if weights.place.is_gpu:
        forward.warm_up(DEFAULT_MAX_WIDTH)
    model = Metered(texts.trace(checkpoint.vocabulary), checkpoint.vocabulary, forward)
    engine = TargetEngine(model, limits=Limits(max_sessions=num_slots))
    server = grpc.aio.server(interceptors=[CallInterceptor(OpenCalls())], options=[("grpc.so_reuseport", 0)])
    add_VerificationServicer_to_server(VerificationService(checkpoint, engine, ServingOptions()), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pool = None
    if num_processes:
        pool = ProcessPoolExecutor(num_processes, multiprocessing.get_context("spawn"))
        list(pool.map(be_ready, range(num_processes)))
    try:
        yield Service(weights, texts, dtype, f"127.0.0.1:{port}", model, pool, num_processes)
    finally:
        await server.stop(0)
        await engine.stop()
        if pool is not None:
            pool.shutdown()
