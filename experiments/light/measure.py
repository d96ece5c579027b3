"""Measure running draft servers: time to start, memory, and the cost of live sessions."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import soundfile

from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import Server, running_process
from experiments.common.servers.usage import cpu_s, resident_mb
from experiments.streaming.session import DECODING, paced
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import SAMPLE_RATE
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.server_process import following, start_server
from specwhisper_client.streaming import StreamingClient

TARGET, DRAFT = "specwhisper_target_server", "specwhisper_draft_server"
SPACING_S = 0.7  # between starts of live sessions, so that their steps do not coincide
MAX_TOKENS = 24  # of random weights, which end no window by themselves


@dataclass(frozen=True, slots=True)
class Footprint:
    """A draft server with a model: seconds to start, and memory once the model is placed."""

    name: str
    start_s: tuple[float, ...]
    resident_mb: float


@dataclass(frozen=True, slots=True)
class Live:
    """Live sessions on a draft server that has a core.

    Attributes
    ----------
    core_share : of the core's time, over the time that audio was sent.
    drafted : share of the committed tokens that the draft had proposed, now or in an earlier step.
    steps_per_s : steps of each session per second of audio.
    """

    num_sessions: int
    core_share: float
    drafted: float
    steps_per_s: float

    @property
    def per_core(self) -> float:
        """Sessions that would take the whole core."""
        return self.num_sessions / self.core_share


def start_seconds(arguments: Sequence[str], starts: int) -> tuple[float, ...]:
    """Start a draft server several times; return the seconds until each was ready."""
    command = (sys.executable, "-m", DRAFT, "--port", "0", "--log-format", "json")
    seconds = []
    for _ in range(starts):
        begun_s = time.perf_counter()
        process = start_server([*command, *arguments])
        with following(process, DRAFT):
            seconds.append(time.perf_counter() - begun_s)
    return tuple(seconds)


def footprint(
    name: str,
    target: str,
    arguments: Sequence[str],
    *,
    sample: Sample,
    starts: int,
    cores: Sequence[int],
    has_limit: bool,
) -> Footprint:
    """Measure a draft server that holds eight sessions, after it has drafted for one."""
    options = DecodingOptions.greedy(language="en", max_new_tokens=MAX_TOKENS if has_limit else None)
    with ExitStack() as stack:
        server = stack.enter_context(running_process(TARGET, "--model", target, cores=cores[:1]))
        arguments = ("--target", server.address, "--max-sessions", "8", *arguments)
        draft = stack.enter_context(running_process(DRAFT, *arguments, cores=cores[-1:]))
        asyncio.run(_transcribe(draft, sample, options))
        resident = resident_mb(draft.process)
        return Footprint(name, start_seconds(arguments, starts), resident)


async def _transcribe(server: Server, sample: Sample, options: DecodingOptions) -> None:
    with NamedTemporaryFile(suffix=".wav") as file:
        soundfile.write(file.name, np.frombuffer(sample.pcm, "<i2"), SAMPLE_RATE)
        async with TranscriptionClient(server.address) as client:
            await client.transcribe_file(file.name, options)


def live(
    folder: Path, sample: Sample, num_sessions: int, *, dtype: str, cut_windows: bool, cores: Sequence[int]
) -> Live:
    """Send a recording in live sessions; the target is as light as the draft, on another core.

    In mode ``sync`` such a target waits for the draft, which has to do all its work.
    """
    with ExitStack() as stack:
        sessions = ("--max-sessions", str(num_sessions))
        target = stack.enter_context(
            running_process(TARGET, "--model", "demo-draft-tiny", *sessions, cores=cores[:1])
        )
        draft = stack.enter_context(
            running_process(
                *("experiments.light.serve_draft", "--repeating", str(folder), "--target", target.address),
                *("--dtype", dtype, *sessions, *(["--cut-windows"] if cut_windows else [])),
                cores=cores[-1:],
            )
        )
        asyncio.run(_speak(draft.address, sample, 0.0, SpeculationStatistics()))  # places the model
        statistics = SpeculationStatistics()
        before_s, begun_s = cpu_s(draft.process), time.perf_counter()
        asyncio.run(_speak_all(draft.address, sample, num_sessions, statistics))
        share = (cpu_s(draft.process) - before_s) / (time.perf_counter() - begun_s)
        accepted = statistics.num_accepted + statistics.num_hinted_accepted
        audio_s = num_sessions * len(sample.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE
        drafted = accepted / max(1, statistics.num_committed)
        return Live(num_sessions, share, drafted, statistics.num_windows / audio_s)


async def _speak_all(
    server: str, sample: Sample, num_sessions: int, statistics: SpeculationStatistics
) -> None:
    delays_s = (number * SPACING_S for number in range(num_sessions))
    await asyncio.gather(*(_speak(server, sample, delay_s, statistics) for delay_s in delays_s))


async def _speak(server: str, sample: Sample, delay_s: float, statistics: SpeculationStatistics) -> None:
    """Send a recording in real time after a delay, and add its statistics."""
    await asyncio.sleep(delay_s)
    last = SpeculationStatistics()
    async with StreamingClient(server, DECODING) as stream:

        async def send() -> None:
            async for pcm in paced(sample.pcm, time.monotonic()):
                await stream.send(pcm)
            await stream.finish()

        sending = asyncio.create_task(send())
        try:
            async for update in stream:
                last = update.statistics or last
            await sending
        finally:
            sending.cancel()
    statistics.add(last)
