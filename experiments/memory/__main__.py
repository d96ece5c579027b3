"""``python -m experiments.memory``: hours of one recording through three processes, in constant memory."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from client.exchange import exchange
from client.messages import config_to_proto, seconds
from experiments.common.args import Audio, Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.processes import available_cores, running_server
from experiments.common.report import Bar, open_console, print_bars, write_json
from experiments.common.samples import Sample, load_samples
from specwhisper.audio.source import PIECE_BYTES
from specwhisper.errors import SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper.wire.channels import open_channel
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub

QUICK_HOURS = 1 / 6
SETTLED_S = 60.0  # of audio, after which every buffer has been used
BOUND = 1.05
PROCESSES = ("target server", "draft server", "client")


@dataclass(frozen=True, slots=True)
class Reading:
    """Resident memory of the processes when the text has come so far."""

    at_s: float
    resident_mb: tuple[float, ...]


def memory(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    hours: Annotated[float, typer.Option(min=0.05, help="Length of the recording.")] = 2.0,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Stream one long recording, made of the samples in random order, and watch the memory of each process.

    It is sent as fast as it is taken. After its first minute, memory shall stay within 5 %. The target alone
    then transcribes the same recording, and both texts are compared.
    """
    console = open_console()
    length_s = 3600 * (QUICK_HOURS if quick else hours)
    cores = available_cores()
    try:
        samples = load_samples(audio)
        with ExitStack() as stack:
            server = stack.enter_context(running_server("target_server", "--model", target, cores=cores[:1]))
            arguments = ("--target", server, "--draft-model", draft)
            address = stack.enter_context(running_server("draft_server", *arguments, cores=cores[-1:]))
            processes = [*children(), os.getpid()]
            progress = stack.enter_context(
                Progress(
                    TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console
                )
            )
            task = progress.add_task("transcribing", total=length_s)
            readings: list[Reading] = []

            def note(at_s: float) -> None:
                readings.append(Reading(at_s, tuple(map(resident_mb, processes))))
                progress.update(task, completed=at_s)

            tokens = asyncio.run(transcribe(address, samples, length_s, seed, Mode.FULL, note))
            alone = asyncio.run(transcribe(address, samples, length_s, seed, Mode.TARGET_ONLY))
    except SpecWhisperError as error:
        sys.exit(f"experiments.memory: {error}")
    verdict = "identical to target-only" if tokens == alone else "DIFFERENT from target-only"
    table = Table(
        *("process", "MB after a minute", "least", "most", "at the end"),
        title=f"{length_s / 60:.0f} minutes, {len(tokens)} tokens, {verdict}",
    )
    bars = [Bar("texts that differ from target-only", float(tokens != alone), 0.5, str(int(tokens != alone)))]
    for i, name in enumerate(PROCESSES):
        mb = [reading.resident_mb[i] for reading in readings if reading.at_s >= SETTLED_S]
        table.add_row(name, *(f"{number:.0f}" for number in (mb[0], min(mb), max(mb), mb[-1])))
        change = max(max(mb) / mb[0], mb[0] / min(mb))
        bars.append(Bar(f"memory of the {name}, largest change", change, BOUND, f"factor {change:.3f}"))
    console.print(table)
    if json is not None:
        figures = {
            "length_s": length_s,
            "processes": PROCESSES,
            "num_tokens": len(tokens),
            "is_identical": tokens == alone,
            "bars": list(map(str, bars)),
            "readings": list(map(asdict, readings)),
        }
        write_json(json, models={"target": target, "draft": draft}, figures=figures)
    sys.exit(0 if not check or print_bars(bars, console) else 1)


async def transcribe(
    address: str,
    samples: list[Sample],
    length_s: float,
    seed: int,
    mode: Mode,
    note: Callable[[float], None] = lambda at_s: None,
) -> list[int]:
    """Send the recording, note each final segment's end, and give every token."""
    tokens: list[int] = []
    loudest = [sample.log_mel_max for sample in samples if sample.log_mel_max]
    options = DecodingOptions(language="en", log_mel_max=loudest[0] if loudest else {})
    config = pb.StreamingRecognitionConfig(config=config_to_proto(options, mode, None, is_container=False))
    async with open_channel(address) as channel:
        call = TranscriptionStub(channel).StreamingRecognize()
        async with aclosing(exchange(call, config, endless(samples, length_s, seed))) as responses:
            async for response in responses:
                for result in response.results:
                    tokens += result.alternatives[0].tokens
                if response.results:
                    note(seconds(response.results[-1].end_offset))
    return tokens


async def endless(samples: list[Sample], length_s: float, seed: int) -> AsyncIterator[bytes]:
    """Give samples in random order with a second of silence between them."""
    random = np.random.default_rng(seed)
    num_bytes = 0
    while num_bytes < length_s * SAMPLE_RATE * 2:
        pcm = samples[random.integers(len(samples))].pcm + bytes(2 * SAMPLE_RATE)
        num_bytes += len(pcm)
        for start in range(0, len(pcm), PIECE_BYTES):
            yield pcm[start : start + PIECE_BYTES]


def children() -> list[int]:
    """Give the processes that this one has started, oldest first."""
    found = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return sorted(map(int, found.split()))


def resident_mb(process: int) -> float:
    """Read how much memory a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    typer.run(memory)
