"""``memory``: hours of one file in constant memory, over servers and in one process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import soundfile
from rich.table import Table

from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.program import Draft, Program, Target, program
from experiments.common.bench.report import Bar, none
from experiments.common.servers.processes import available_cores, running_pair
from experiments.common.servers.usage import resident_mb
from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper_client.api import TranscriptionClient

HOURS, QUICK_HOURS = 2.0, 1 / 15
SETTLED_S = 60.0  # after this much audio every buffer has been used
BOUND = 0.05


@dataclass(slots=True)
class Process:
    """A process that takes part: its memory at each place that the text reaches, in seconds of audio."""

    name: str
    id: int
    at_s: list[float] = field(default_factory=list)
    resident_mb: list[float] = field(default_factory=list)

    @property
    def settled_mb(self) -> list[float]:
        pairs = zip(self.at_s, self.resident_mb, strict=True)
        return [each_mb for at_s, each_mb in pairs if at_s >= SETTLED_S]


@program
def memory(given: Program, target: Target = "demo-target", draft: Draft = "demo-draft-tiny") -> None:
    """Transcribe one long file, made of the samples in random order, and watch the memory of each process.

    Client, draft server and target server do it first, as fast as they can, then the Python API in one
    process. After the first minute of audio each stays within 5 % of its median memory. The target
    alone transcribes the same file through the servers, and all texts are compared.
    """
    cores, path = available_cores(), given.folder / "long.flac"
    length_s = write_long(path, load_samples(None), 3600 * given.choose(QUICK_HOURS, HOURS), given.seed)
    with ExitStack() as stack:
        served, drafting = stack.enter_context(running_pair(target, draft, cores=cores))
        status = stack.enter_context(given.console.status(""))

        def noting(name: str, processes: Sequence[Process]) -> Callable[[float], None]:
            def note(at_s: float) -> None:
                for process in processes:
                    process.at_s.append(at_s)
                    process.resident_mb.append(resident_mb(process.id))
                status.update(f"{name}: {at_s / 60:.0f} of {length_s / 60:.0f} minutes")

            return note

        apart = [
            Process("target server", served.process),
            Process("draft server", drafting.process),
            Process("client", os.getpid()),
        ]
        in_one = Process("one process", os.getpid())

        def served_tokens(name: str, mode: Mode, processes: Sequence[Process]) -> list[int]:
            note = noting(name, processes)
            return asyncio.run(through_servers(drafting.address, path, mode, note))

        split = served_tokens("three processes", Mode.FULL, apart)
        alone = served_tokens("target alone", Mode.TARGET_ONLY, [])
        one_process = in_one_process(target, draft, path, noting("one process", [in_one]))
    num_different = sum(tokens != alone for tokens in (split, one_process))
    table = Table(
        *("process", "MB after a minute", "least", "median", "most", "at the end"),
        title=f"{length_s / 60:.0f} minutes, {len(alone)} tokens, {num_different} texts differ",
    )
    bars = [none("texts that differ from target-only", num_different)]
    for process in (*apart, in_one):
        mb = process.settled_mb
        shown = (mb[0], min(mb), median(mb), max(mb), mb[-1])
        table.add_row(process.name, *(f"{number:.0f}" for number in shown))
        up, down = max(mb) / median(mb) - 1, 1 - min(mb) / median(mb)
        name = f"memory of {process.name} around its median"
        bars.append(Bar(name, max(up, down), BOUND, f"+{up:.1%}, -{down:.1%}"))
    given.console.print(table)
    figures = {
        "length_s": length_s,
        "num_tokens": len(alone),
        "processes": {
            each.name: {"at_s": each.at_s, "resident_mb": each.resident_mb} for each in (*apart, in_one)
        },
    }
    wrong = [f"{num_different} texts differ from target-only"] if num_different else []
    given.end({"target": target, "draft": draft}, figures, bars, wrong)


def write_long(path: Path, samples: Sequence[Sample], length_s: float, seed: int) -> float:
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
    async with TranscriptionClient(address) as client:
        transcription = client.stream_file(path, DecodingOptions.greedy(language="en"), mode=mode)
        async for update in transcription:
            if update.segments:
                note(update.segments[-1].end_s)
        return [token for segment in transcription.result.segments for token in segment.tokens]


def in_one_process(target: str, draft: str, path: Path, note: Callable[[float], None]) -> list[int]:
    pair = SpeculativeWhisper(draft, target, device="cpu", batch_size=1)
    last_s = 0.0

    def watch(index: int, builder: TranscriptBuilder) -> None:
        nonlocal last_s
        if builder.segments and builder.segments[-1].end_s > last_s:
            last_s = builder.segments[-1].end_s
            note(last_s)

    result = pair.transcribe(path, language="en", watch=watch)
    return [token for segment in result.segments for token in segment.tokens]
