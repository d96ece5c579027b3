"""``python -m experiments.memory``: hours of one file in constant memory, over servers and in one process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import soundfile
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.servers.processes import available_cores, running_server
from experiments.common.servers.usage import resident_mb
from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.errors import SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper_client.api import TranscriptionClient

QUICK_HOURS = 1 / 15
SETTLED_S = 60.0  # of audio, after which every buffer has been used
BOUND = 0.05
PROCESSES = ("target server", "draft server", "client")
IN_ONE = ("one process",)


@dataclass(frozen=True, slots=True)
class Reading:
    """Resident memory of the processes when the text has come so far."""

    at_s: float
    resident_mb: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One way to transcribe the file: the tokens it wrote and the memory of its processes."""

    processes: Sequence[str]
    tokens: list[int]
    readings: list[Reading]

    def settled_mb(self, process: int) -> list[float]:
        """Return a process's readings after the first minute of audio."""
        return [reading.resident_mb[process] for reading in self.readings if reading.at_s >= SETTLED_S]


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
    """Transcribe one long file, made of the samples in random order, and watch the memory of each process.

    Client, draft server and target server do it first, as fast as they can, then the Python API in one
    process. After the first minute of audio each stays within 5 % of its median memory. The target
    alone transcribes the same file through the servers, and all texts are compared.
    """
    console = open_console()
    cores = available_cores()
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            length_s = 3600 * (QUICK_HOURS if quick else hours)
            path = folder / "long.flac"
            length_s = write_long(path, load_samples(audio), length_s, seed)
            server = stack.enter_context(
                running_server("specwhisper_target_server", "--model", target, cores=cores[:1])
            )
            arguments = ("--target", server, "--draft-model", draft)
            address = stack.enter_context(
                running_server("specwhisper_draft_server", *arguments, cores=cores[-1:])
            )
            processes = [*children(), os.getpid()]
            progress = stack.enter_context(
                Progress(
                    TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console
                )
            )

            def watched(name: str, who: list[int]) -> tuple[list[Reading], Callable[[float], None]]:
                readings: list[Reading] = []
                task = progress.add_task(name, total=length_s)

                def note(at_s: float) -> None:
                    readings.append(Reading(at_s, tuple(map(resident_mb, who))))
                    progress.update(task, completed=at_s)

                return readings, note

            readings, note = watched("three processes", processes)
            split = Run(PROCESSES, asyncio.run(through_servers(address, path, Mode.FULL, note)), readings)
            _, note = watched("target alone", processes)
            alone = asyncio.run(through_servers(address, path, Mode.TARGET_ONLY, note))
            readings, note = watched("one process", [os.getpid()])
            in_one = Run(IN_ONE, in_one_process(target, draft, path, note), readings)
    except SpecWhisperError as error:
        sys.exit(f"experiments.memory: {error}")
    runs = (split, in_one)
    verdict = "identical" if all(run.tokens == alone for run in runs) else "DIFFERENT"
    table = Table(
        *("process", "MB after a minute", "least", "median", "most", "at the end"),
        title=f"{length_s / 60:.0f} minutes, {len(alone)} tokens, {verdict} to target-only",
    )
    num_different = sum(run.tokens != alone for run in runs)
    bars = [Bar("texts that differ from target-only", num_different, 0.5, str(num_different))]
    for run in runs:
        for i, name in enumerate(run.processes):
            mb = run.settled_mb(i)
            table.add_row(
                name, *(f"{number:.0f}" for number in (mb[0], min(mb), median(mb), max(mb), mb[-1]))
            )
            middle = median(mb)
            up, down = max(mb) / middle - 1, 1 - min(mb) / middle
            shown = f"+{up:.1%}, -{down:.1%}"
            bars.append(Bar(f"memory of {name} around its median", max(up, down), BOUND, shown))
    console.print(table)
    if json is not None:
        figures = {
            "length_s": length_s,
            "num_tokens": len(alone),
            "num_different": num_different,
            "bars": list(map(str, bars)),
            "runs": [
                {"processes": run.processes, "readings": list(map(asdict, run.readings))} for run in runs
            ],
        }
        write_json(json, models={"target": target, "draft": draft}, figures=figures)
    sys.exit(0 if not check or print_bars(bars, console) else 1)


def write_long(path: Path, samples: list[Sample], length_s: float, seed: int) -> float:
    """Write samples in random order, a second of silence between them; give how long it has become."""
    random = np.random.default_rng(seed)
    pause = np.zeros(SAMPLE_RATE, np.int16)
    num_samples = 0
    with soundfile.SoundFile(path, "w", SAMPLE_RATE, 1, "PCM_16") as file:
        while num_samples < length_s * SAMPLE_RATE:
            pcm = np.frombuffer(samples[random.integers(len(samples))].pcm, "<i2")
            file.write(pcm)
            file.write(pause)
            num_samples += len(pcm) + len(pause)
    return num_samples / SAMPLE_RATE


async def through_servers(address: str, path: Path, mode: Mode, note: Callable[[float], None]) -> list[int]:
    """Transcribe the file as a client does, note each final segment's end, and give every token."""
    async with TranscriptionClient(address) as client:
        transcription = client.stream_file(path, DecodingOptions.greedy(language="en"), mode=mode)
        async for update in transcription:
            if update.segments:
                note(update.segments[-1].end_s)
        return [token for segment in transcription.result.segments for token in segment.tokens]


def in_one_process(target: str, draft: str, path: Path, note: Callable[[float], None]) -> list[int]:
    """Transcribe the file with the Python API."""
    pair = SpeculativeWhisper(draft, target, device="cpu", batch_size=1)
    last_s = 0.0

    def watch(index: int, builder: TranscriptBuilder) -> None:
        nonlocal last_s
        if builder.segments and builder.segments[-1].end_s > last_s:
            last_s = builder.segments[-1].end_s
            note(last_s)

    result = pair.transcribe(path, language="en", watch=watch)
    return [token for segment in result.segments for token in segment.tokens]


def children() -> list[int]:
    """Return the processes that this one has started, oldest first."""
    found = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return sorted(map(int, found.split()))


if __name__ == "__main__":
    typer.run(memory)
