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
from specwhisper.types import SAMPLE_RATE
from specwhisper.wire.channels import open_channel
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub

QUICK_HOURS = 1 / 6
SETTLED = 0.1  # share of the recording after which every buffer has been used once
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

    It is sent as fast as it is taken. From the first tenth on, memory shall not grow by more than 5 %.
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

            asyncio.run(transcribe(address, samples, length_s, seed, note))
    except SpecWhisperError as error:
        sys.exit(f"experiments.memory: {error}")
    growths = [growth(readings, i) for i in range(len(PROCESSES))]
    table = Table(
        "process", "MB after a tenth", "MB at most", "MB at the end", title=f"{length_s / 60:.0f} min"
    )
    first = settled(readings)
    for i, name in enumerate(PROCESSES):
        numbers = (first[0].resident_mb[i], max(r.resident_mb[i] for r in first), first[-1].resident_mb[i])
        table.add_row(name, *(f"{number:.0f}" for number in numbers))
    console.print(table)
    bars = [
        Bar(f"memory of the {name}, most over that after a tenth", value, BOUND, f"{value:.3f}")
        for name, value in zip(PROCESSES, growths, strict=True)
    ]
    if json is not None:
        figures = {
            "length_s": length_s,
            "processes": PROCESSES,
            "bars": list(map(str, bars)),
            "readings": list(map(asdict, readings)),
        }
        write_json(json, models={"target": target, "draft": draft}, figures=figures)
    sys.exit(0 if not check or print_bars(bars, console) else 1)


async def transcribe(
    address: str, samples: list[Sample], length_s: float, seed: int, note: Callable[[float], None]
) -> None:
    """Send the recording and note each final segment's end."""
    loudest = [sample.log_mel_max for sample in samples if sample.log_mel_max]
    options = DecodingOptions(language="en", log_mel_max=loudest[0] if loudest else {})
    config = pb.StreamingRecognitionConfig(config=config_to_proto(options, None, None, is_container=False))
    async with open_channel(address) as channel:
        call = TranscriptionStub(channel).StreamingRecognize()
        async with aclosing(exchange(call, config, endless(samples, length_s, seed))) as responses:
            async for response in responses:
                if ends := [result.end_offset for result in response.results if result.is_final]:
                    note(seconds(ends[-1]))


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


def settled(readings: list[Reading]) -> list[Reading]:
    """Leave the beginning out, in which every buffer is used for the first time."""
    return [reading for reading in readings if reading.at_s >= SETTLED * readings[-1].at_s]


def growth(readings: list[Reading], process: int) -> float:
    """Give the most memory of a process over that after the first tenth."""
    values = [reading.resident_mb[process] for reading in settled(readings)]
    return max(values) / values[0]


if __name__ == "__main__":
    typer.run(memory)
