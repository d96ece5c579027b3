"""Clients in one process: each runs a draft server's session, over gRPC or in the target's process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from experiments.capacity.load import Clients, Load, Outcome, tally
from experiments.capacity.log import PIECE_SAMPLES, SessionLog, expected_windows
from experiments.capacity.models import Measured
from experiments.capacity.usage import Meter
from experiments.common.audio.samples import Sample
from experiments.common.bench.clock import sleep_until
from experiments.common.replay.trace import Trace
from experiments.common.servers.usage import resident_mb
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcriber import TargetDescription, TargetStream, Transcriber
from specwhisper.types import (
    SAMPLE_RATE,
    Commit,
    Limits,
    Mode,
    WindowOpened,
)
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafts.drafting import Drafting
from specwhisper_draft_server.link.link import TargetLink
from specwhisper_draft_server.local_target import LocalTranscriber
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.sessions.session import Session, SessionRequest

BYTES_PER_S = SAMPLE_RATE * BYTES_PER_SAMPLE
PIECE_BYTES = PIECE_SAMPLES * BYTES_PER_SAMPLE
CONNECT_TIMEOUT_S = 60.0

Opened = tuple[Transcriber, Drafting]


@dataclass(frozen=True, slots=True)
class OverNetwork:
    """A target server and a draft without cost: only the target is measured."""

    address: str
    num_slots: int

    def open(self, measured: Measured, meter: Meter) -> Opened:
        """Connect, inside the event loop."""
        link = TargetLink(self.address, connect_timeout_s=CONNECT_TIMEOUT_S)
        return link, measured.drafting(self.num_slots, is_free=True)


@dataclass(frozen=True, slots=True)
class InOneProcess:
    """Target and draft in the client's own process, at their real cost."""

    def open(self, measured: Measured, meter: Meter) -> Opened:
        """Place both models, inside the event loop."""
        meter.own()
        checkpoint, model = measured.target(1, meter)
        engine = TargetEngine(model, limits=Limits(max_sessions=1), max_new_tokens=checkpoint.max_new_tokens)
        return LocalTranscriber(checkpoint, engine), measured.drafting(1, is_free=False)


class ClientProcess:
    """Runs clients in its own process, where its methods are called one at a time.

    Parameters
    ----------
    meter : path of the target process's counters; ``None`` if this is that process.
    """

    def __init__(
        self,
        connection: OverNetwork | InOneProcess,
        measured: Measured,
        samples: Sequence[Sample],
        meter: Path | None = None,
    ) -> None:
        self._meter = Meter() if meter is None else Meter.at(meter)
        self._is_apart = meter is not None
        self._samples = samples
        self._runner = asyncio.Runner()
        self._runner.run(self._open(connection, measured))

    def resident_mb(self) -> float:
        """Return the memory of the target's process."""
        return resident_mb(self._meter.process)

    def close(self) -> None:
        """Close models and connection."""
        self._runner.run(self._close())
        self._runner.close()

    def run(self, load: Load, numbers: Sequence[int], origin_s: float) -> Outcome:
        """Run the clients ``numbers`` of a load that starts at a time of the monotonic clock."""
        return self._runner.run(self._run(load, numbers, origin_s))

    async def _open(self, connection: OverNetwork | InOneProcess, measured: Measured) -> None:
        self._transcriber, self._drafting = connection.open(measured, self._meter)
        self._metrics = DraftMetrics(DraftConfig())
        self._target = await self._transcriber.describe()
        trace = Trace.load(measured.trace)
        self._expected = {
            sample.name: expected_windows(trace, sample.name, self._target.vocabulary)
            for sample in self._samples
        }

    async def _close(self) -> None:
        await self._drafting.stop()
        await self._transcriber.close()

    async def _run(self, load: Load, numbers: Sequence[int], origin_s: float) -> Outcome:
        logs: list[SessionLog] = []
        failures: list[str] = []
        tasks = [
            asyncio.create_task(self._client(load, number, origin_s, logs, failures)) for number in numbers
        ]
        begin_s = origin_s + load.stagger_s
        end_s = begin_s + load.period_s
        await sleep_until(begin_s)
        usage, cpu_s = self._meter.read(), time.process_time()
        await sleep_until(end_s)
        usage, cpu_s = self._meter.read() - usage, time.process_time() - cpu_s
        while any(log.is_overdue(end_s) for log in logs) and time.monotonic() < end_s + load.answer_timeout_s:
            await asyncio.sleep(0.05)
        now_s = time.monotonic()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return replace(
            tally(load, logs, begin_s, end_s, now_s),
            failures=tuple(failures),
            usage=usage,
            generator_s=cpu_s if self._is_apart else 0.0,
            resident_mb=self.resident_mb(),
        )

    async def _client(
        self, load: Load, number: int, origin_s: float, logs: list[SessionLog], failures: list[str]
    ) -> None:
        """Transcribe recordings in turn until cancelled or failed."""
        random = np.random.default_rng((load.seed, number))
        await sleep_until(origin_s + random.uniform(0, load.stagger_s))
        for index in cycle(random.permutation(len(self._samples))):
            sample = self._samples[index]
            log = SessionLog(
                sample.name,
                len(sample.pcm) // BYTES_PER_SAMPLE,
                self._expected[sample.name],
                time.monotonic() if load.clients is Clients.STREAMS else None,
            )
            logs.append(log)
            try:
                await self._transcribe(load, sample, log)
            except Exception as error:
                failures.append(f"client {number}, {sample.name}: {type(error).__name__}: {error}")
                return
            log.finish()
            if log.start_s is not None:
                await sleep_until(log.start_s + sample.duration_s + load.pause_s)

    async def _transcribe(self, load: Load, sample: Sample, log: SessionLog) -> None:
        options = DecodingOptions.greedy(language="en", log_mel_max=sample.log_mel_max)
        request = SessionRequest(options, load.length)
        session = Session(
            request,
            LoggedTranscriber(self._transcriber, log),
            self._target,
            self._drafting,
            self._metrics,
            resume_timeout_s=0.0,
        )
        async with aclosing(session.run(audio_of(sample, log.start_s))) as updates:
            async for _ in updates:
                pass


async def audio_of(sample: Sample, start_s: float | None) -> AsyncIterator[bytes]:
    """Yield a recording at once, or in pieces in real time."""
    if start_s is None:
        yield sample.pcm
        return
    for begin in range(0, len(sample.pcm), PIECE_BYTES):
        piece = sample.pcm[begin : begin + PIECE_BYTES]
        await sleep_until(start_s + (begin + len(piece)) / BYTES_PER_S)
        yield piece


class LoggedTranscriber:
    """A transcriber that logs the events of one session."""

    def __init__(self, transcriber: Transcriber, log: SessionLog) -> None:
        self.address = transcriber.address
        self._transcriber = transcriber
        self._log = log

    async def describe(self, **needs: str) -> TargetDescription:
        """Return the target's description."""
        return await self._transcriber.describe(**needs)

    @asynccontextmanager
    async def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        **settings: Any,
    ) -> AsyncIterator[TargetStream]:
        """Open the session."""
        async with self._transcriber.open(session_id, target, mode, options, **settings) as stream:
            events = stream.events

            async def logged() -> AsyncIterator[WindowOpened | Commit]:
                async for event in events():
                    self._log.add(time.monotonic(), event)
                    yield event

            stream.events = logged  # type: ignore[method-assign]
            yield stream

    async def close(self) -> None:
        """Do nothing: the transcriber's owner closes it."""
