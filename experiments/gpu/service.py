"""Throughput of a target on the GPU over gRPC, with and without drafts."""

from __future__ import annotations

import multiprocessing
import time
from asyncio import gather, get_running_loop
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from experiments.common.bench.clock import sleep_until
from experiments.common.replay.model import ReplayTarget
from experiments.gpu.clients import ClientCounts, Load, run_in_process, sessions, warm_up_process
from experiments.gpu.texts import Texts
from experiments.gpu.weights import Weights
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import WhisperModel
from specwhisper.rpc.calls import CallInterceptor, OpenCalls
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.types import Limits, Mode
from specwhisper.wire.v1.verification_pb2_grpc import add_VerificationServicer_to_server
from specwhisper_target_server.config import GPU_MAX_NUM_BATCHED_TOKENS
from specwhisper_target_server.service import VerificationService

MODES = (Mode.TARGET_ONLY, Mode.SYNC, Mode.FULL)
LEAD_S, QUICK_LEAD_S = 4.0, 0.4  # until all sessions run


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput of a number of sessions in one mode.

    Attributes
    ----------
    forward_s, num_forwards, num_rows : the target's forward passes in the period; a session in one is a row.
    request_s : times from request to text, ascending, of texts that ended within the period.
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
    request_s: tuple[float, ...] = ()

    @property
    def requests_per_s(self) -> float:
        """Texts that ended in a second of the period."""
        return len(self.request_s) / self.period_s

    @property
    def p95_s(self) -> float:
        """Time from request to text of 95 of 100; only if any ended."""
        return self.request_s[int(0.95 * (len(self.request_s) - 1))]

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens per second of all sessions, with encoder and messages."""
        return self.num_tokens / self.period_s

    @property
    def tokens_per_forward_s(self) -> float:
        """Committed tokens per second of forward passes."""
        return self.num_tokens / self.forward_s if self.forward_s else 0.0


class Metered(ReplayTarget):
    """A replay target that counts its forward passes."""

    forward_s = 0.0
    num_forwards = 0
    num_rows = 0

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Run a forward pass and count it."""
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
    """A serving target and its client processes.

    Attributes
    ----------
    pool : ``num_processes`` client processes; ``None`` runs clients in this process.
    """

    weights: Weights
    texts: Texts
    dtype: str
    address: str
    model: Metered
    pool: ProcessPoolExecutor | None
    num_processes: int

    async def measure(self, mode: Mode, num_sessions: int, period_s: float) -> Throughput:
        """Run sessions and count over a period."""
        begin_s = time.monotonic() + (QUICK_LEAD_S if self.weights.place.is_narrow else LEAD_S)
        end_s, num_parts = begin_s + period_s, min(max(1, self.num_processes), num_sessions)
        loads = [
            Load(self.address, self.texts, mode, range(part, num_sessions, num_parts), begin_s, end_s)
            for part in range(num_parts)
        ]
        running = gather(*(self._run_clients(load) for load in loads))
        await sleep_until(begin_s)
        before = self.model.counts()
        await sleep_until(end_s)
        spent = [now - then for now, then in zip(self.model.counts(), before, strict=True)]
        parts: list[ClientCounts] = await running
        return Throughput(
            self.weights.name,
            self.dtype,
            mode.value,
            num_sessions,
            self.texts.acceptance,
            period_s,
            num_tokens=sum(one.num_tokens for one in parts),
            num_passes=sum(one.num_forwards for one in parts),
            num_texts=sum(one.num_texts for one in parts),
            num_different=sum(one.num_different for one in parts),
            failures=tuple(failure for one in parts for failure in one.failures),
            forward_s=spent[0],
            num_forwards=int(spent[1]),
            num_rows=int(spent[2]),
            request_s=tuple(sorted(time_s for one in parts for time_s in one.request_s)),
        )

    async def _run_clients(self, load: Load) -> ClientCounts:
        if self.pool is None:
            return await sessions(load)
        return await get_running_loop().run_in_executor(self.pool, run_in_process, load)


async def measure_service(
    weights: Weights,
    texts: Texts,
    levels: Sequence[int],
    record: Callable[[Throughput], None],
    *,
    dtype: str = "float16",
    period_s: float,
    num_processes: int,
    modes: Sequence[Mode] = MODES,
) -> None:
    """Measure every number of sessions in every mode, and record each."""
    async with _serving(weights, texts, max(levels), dtype, num_processes) as service:
        for num_sessions in levels:
            for mode in modes:
                record(await service.measure(mode, num_sessions, period_s))


@asynccontextmanager
async def _serving(
    weights: Weights, texts: Texts, num_slots: int, dtype: str, num_processes: int
) -> AsyncIterator[Service]:
    """Serve a replay target on the loopback interface."""
    checkpoint = weights.checkpoint(dtype)
    forward = WhisperModel(checkpoint, num_slots, device=weights.place.device, has_static_shapes=True)
    if weights.place.is_gpu:
        forward.warm_up()
    model = Metered(texts.trace(checkpoint.vocabulary), checkpoint.vocabulary, forward)
    engine = TargetEngine(
        model,
        limits=Limits(max_sessions=num_slots),
        max_num_batched_tokens=GPU_MAX_NUM_BATCHED_TOKENS,
    )
    server = grpc.aio.server(interceptors=[CallInterceptor(OpenCalls())], options=[("grpc.so_reuseport", 0)])
    add_VerificationServicer_to_server(VerificationService(checkpoint, engine, ServingOptions()), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pool = None
    if num_processes:
        pool = ProcessPoolExecutor(num_processes, multiprocessing.get_context("spawn"))
        list(pool.map(warm_up_process, range(num_processes)))
    try:
        yield Service(weights, texts, dtype, f"127.0.0.1:{port}", model, pool, num_processes)
    finally:
        await server.stop(0)
        await engine.stop()
        if pool is not None:
            pool.shutdown()
