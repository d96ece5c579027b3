"""Throughput of a target on the GPU over gRPC, with and without drafts."""

from __future__ import annotations

import asyncio
import os
import time
from asyncio import gather, get_running_loop
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context

import grpc.aio
import numpy as np

from experiments.capacity.clients import Counts, Load, Spoken, run_clients
from experiments.common.audio.samples import Sample
from experiments.common.replay.model import ReplayTarget
from experiments.common.replay.trace import Decoding, Trace, window_digest
from experiments.gpu.weights import Place, Weights
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.rpc.calls import CallInterceptor, OpenCalls
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import SAMPLE_RATE, Limits, Mode
from specwhisper.wire.v1.verification_pb2_grpc import add_VerificationServicer_to_server
from specwhisper_target_server.config import GPU_MAX_NUM_BATCHED_TOKENS
from specwhisper_target_server.service import VerificationService

LEAD_S, QUICK_LEAD_S = 4.0, 0.4  # until all sessions run
PERIOD_S, QUICK_PERIOD_S = 6.0, 2.0
GAMMA = 5
OPTIONS = DecodingOptions.greedy(language="en", timestamps=False)
RECORDING_S = 10.0
ACCEPTANCE = 0.85  # share of positions at which the draft agrees with the target
MAX_CONTINUATION = 32  # tokens of a draft after it diverges


def noise(seed: tuple[int, ...], length_s: float) -> bytes:
    samples = np.random.default_rng(seed).normal(0, 3_000, int(length_s * SAMPLE_RATE))
    return samples.clip(-32_768, 32_767).astype("<i2").tobytes()


@dataclass(frozen=True, slots=True)
class Texts:
    """Recordings of 10 s of noise, each with a random text of ``num_tokens``."""

    num_recordings: int
    num_tokens: int
    seed: int

    def spoken(self, trace: Trace) -> list[Spoken]:
        return [
            Spoken(each.recording, noise((self.seed, number), RECORDING_S), OPTIONS, [each.tokens])
            for number, each in enumerate(trace.decodings)
        ]

    def trace(self, vocabulary: Vocabulary) -> Trace:
        decodings = tuple(self._decoding(number, vocabulary) for number in range(self.num_recordings))
        return Trace("random", "random", vocabulary.digest, decodings)

    def _decoding(self, number: int, vocabulary: Vocabulary) -> Decoding:
        random = np.random.default_rng((self.seed, number, 1))
        sample = Sample("noise", noise((self.seed, number), RECORDING_S), {})
        end = vocabulary.end_of_text
        written = random.integers(0, end, self.num_tokens - 1).tolist()
        continuations = random.integers(0, end, (self.num_tokens, MAX_CONTINUATION)).tolist()
        diverges = random.random(self.num_tokens) >= ACCEPTANCE
        return Decoding(
            recording=str(number),
            start_frame=0,
            audio=window_digest(sample.recording, 0),
            prompt=vocabulary.prompt(OPTIONS, OPTIONS.language),
            temperature=0.0,
            tokens=(*written, end),
            log_probs=(-0.1,) * self.num_tokens,
            margins=(1.0,) * self.num_tokens,
            divergences={i: tuple(continuations[i]) for i in np.flatnonzero(diverges).tolist()},
        )


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput of a number of sessions in one mode.

    Attributes
    ----------
    requests_per_s, p95_s : texts that ended within the period; the time from request to text of 95 of 100.
    tokens_per_s : tokens of all sessions, with encoder and messages.
    tokens_per_forward_s : per second of the target's forward passes.
    tokens_per_pass, sessions_per_pass : tokens of one session in a pass, and sessions in one.
    """

    shape: str
    dtype: str
    mode: str
    num_sessions: int
    requests_per_s: float
    p95_s: float
    tokens_per_s: float
    tokens_per_forward_s: float
    tokens_per_pass: float
    sessions_per_pass: float
    num_texts: int
    num_different: int
    failures: tuple[str, ...] = ()


class Metered(ReplayTarget):
    """A replay target that counts its forward passes: their seconds, their number and their sessions."""

    forward_s = 0.0
    num_forwards = 0
    num_rows = 0

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        started_s = time.perf_counter()
        scores = super().score(rows)
        self.forward_s += time.perf_counter() - started_s
        self.num_forwards += 1
        self.num_rows += len(rows)
        return scores

    def totals(self) -> tuple[float, int, int]:
        return self.forward_s, self.num_forwards, self.num_rows


def run_in_process(load: Load, trace: Trace, texts: Texts) -> Counts:
    return asyncio.run(run_clients(load, trace, texts.spoken(trace)))


def occupy(number: int) -> None:
    """Occupy a process of the pool, so that each has loaded its modules."""
    time.sleep(1.0)


def measure_service(
    weights: Weights, texts: Texts, levels: Sequence[int], modes: Sequence[Mode], *, dtype: str
) -> Iterator[Throughput]:
    """Yield every number of sessions in every mode; clients of narrow shapes run in this process."""
    checkpoint, place = weights.checkpoint(dtype), weights.place
    trace = texts.trace(checkpoint.vocabulary)
    num_processes = 0 if place.is_narrow else min(8, (os.cpu_count() or 1) // 2)
    lead_s, period_s = (QUICK_LEAD_S, QUICK_PERIOD_S) if place.is_narrow else (LEAD_S, PERIOD_S)

    async def run(load: Load) -> Counts:
        if pool is None:
            return await run_clients(load, trace, texts.spoken(trace))
        return await get_running_loop().run_in_executor(pool, run_in_process, load, trace, texts)

    async def counted(address: str, model: Metered, mode: Mode, num_sessions: int) -> Throughput:
        start_s = time.monotonic()
        begin_s = start_s + lead_s
        end_s = begin_s + period_s
        num_parts = min(max(1, num_processes), num_sessions)
        parts = (range(part, num_sessions, num_parts) for part in range(num_parts))
        loads = [Load(address, mode, part, GAMMA, place.seed, start_s, begin_s, end_s) for part in parts]
        running = gather(*map(run, loads))
        await asyncio.sleep(begin_s - time.monotonic())
        before = model.totals()
        await asyncio.sleep(end_s - time.monotonic())
        forward_s, num_forwards, num_rows = (
            now - then for now, then in zip(model.totals(), before, strict=True)
        )
        counts: list[Counts] = await running
        num_tokens = sum(each.num_tokens for each in counts)
        request_s = [time_s for each in counts for time_s in each.request_s]
        return Throughput(
            weights.name,
            dtype,
            mode.value,
            num_sessions,
            requests_per_s=len(request_s) / period_s,
            p95_s=float(np.quantile(request_s, 0.95)) if request_s else 0.0,
            tokens_per_s=num_tokens / period_s,
            tokens_per_forward_s=num_tokens / max(forward_s, 1e-9),
            tokens_per_pass=num_tokens / max(1, sum(each.num_passes for each in counts)),
            sessions_per_pass=num_rows / max(1, num_forwards),
            num_texts=sum(each.num_texts for each in counts),
            num_different=sum(len(each.differences) for each in counts),
            failures=tuple(failure for each in counts for failure in each.failures),
        )

    with ExitStack() as stack:
        pool = None
        if num_processes:
            pool = stack.enter_context(ProcessPoolExecutor(num_processes, get_context("spawn")))
            list(pool.map(occupy, range(num_processes)))
        runner = stack.enter_context(asyncio.Runner())
        served = serving(checkpoint, trace, max(levels), place)
        address, model = runner.run(served.__aenter__())
        stack.callback(lambda: runner.run(served.__aexit__(None, None, None)))
        for num_sessions in levels:
            for mode in modes:
                yield runner.run(counted(address, model, mode, num_sessions))


@asynccontextmanager
async def serving(
    checkpoint: Checkpoint, trace: Trace, num_slots: int, place: Place
) -> AsyncIterator[tuple[str, Metered]]:
    forward = WhisperModel(checkpoint, num_slots, device=place.device, has_static_shapes=True)
    if place.is_gpu:
        forward.warm_up()
    model = Metered(trace, checkpoint.vocabulary, forward)
    limits = Limits(max_sessions=num_slots)
    engine = TargetEngine(model, limits=limits, max_num_batched_tokens=GPU_MAX_NUM_BATCHED_TOKENS)
    server = grpc.aio.server(interceptors=[CallInterceptor(OpenCalls())], options=[("grpc.so_reuseport", 0)])
    add_VerificationServicer_to_server(VerificationService(checkpoint, engine, ServingOptions()), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", model
    finally:
        await server.stop(0)
        await engine.stop()
