"""``draft-server``: memory and time to start of a draft server on CPUs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from rich.table import Table

from experiments.common.audio.samples import bundled
from experiments.common.bench.program import Program, program
from experiments.common.bench.report import Bar
from experiments.common.models.checkpoints import PUBLISHED, save_checkpoint
from experiments.common.servers.processes import DRAFT_SERVER, TARGET_SERVER, available_cores, running_process
from experiments.common.servers.usage import resident_mb
from specwhisper.options import DecodingOptions
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.server_process import following, start_server

DEMO, INT8 = "demo-draft-tiny", "tiny's shape in int8, cut windows"
NUM_SESSIONS = 8
MAX_TOKENS = 24  # random weights never end a window by themselves
MAX_MB, MAX_START_S = {DEMO: 200.0, INT8: 300.0}, 1.5  # the bars


@dataclass(frozen=True, slots=True)
class Footprint:
    """A draft server with a model: memory once the model is placed, and seconds to start."""

    name: str
    resident_mb: float
    start_s: list[float]


@program
def draft_server(given: Program) -> None:
    """Measure a draft server on one core that holds eight sessions, after it has drafted for one.

    It runs the demo's draft, then a model of tiny's shape with random weights in int8.
    """
    path, starts = bundled()[0], given.choose(2, 5)
    folder = str(save_checkpoint(replace(PUBLISHED["tiny"], seed=given.seed), given.folder / "tiny"))
    tiny = ("--draft-model", folder, "--dtype", "int8", "--cut-windows")
    footprints = [
        measure(DEMO, "demo-target", ("--draft-model", DEMO), path, None, starts),
        measure(INT8, folder, tiny, path, MAX_TOKENS, starts),
    ]
    table = Table("draft server, one session used", "MB resident", "s to start")
    bars = []
    for each in footprints:
        seconds = median(each.start_s)
        table.add_row(each.name, f"{each.resident_mb:.0f}", ", ".join(f"{s:.2f}" for s in each.start_s))
        shown = f"{each.resident_mb:.0f}"
        bars.append(Bar(f"{each.name}, MB resident", each.resident_mb, MAX_MB[each.name], shown))
        bars.append(Bar(f"{each.name}, s to start", seconds, MAX_START_S, f"{seconds:.2f}"))
    given.console.print(table)
    given.end({"drafts": [DEMO, INT8]}, {"footprints": [asdict(each) for each in footprints]}, bars)


def measure(
    name: str, target: str, arguments: Sequence[str], path: Path, max_tokens: int | None, starts: int
) -> Footprint:
    cores = available_cores()
    with ExitStack() as stack:
        server = stack.enter_context(running_process(TARGET_SERVER, "--model", target, cores=cores[:1]))
        arguments = ("--target", server.address, "--max-sessions", str(NUM_SESSIONS), *arguments)
        draft = stack.enter_context(running_process(DRAFT_SERVER, *arguments, cores=cores[-1:]))
        asyncio.run(transcribe(draft.address, path, max_tokens))
        resident = resident_mb(draft.process)
        command = (sys.executable, "-m", DRAFT_SERVER, "--port", "0", "--log-format", "json")
        seconds = []
        for _ in range(starts):
            begun_s = time.perf_counter()
            with following(start_server([*command, *arguments]), DRAFT_SERVER):
                seconds.append(time.perf_counter() - begun_s)
    return Footprint(name, resident, seconds)


async def transcribe(address: str, path: Path, max_tokens: int | None) -> None:
    options = DecodingOptions.greedy(language="en", max_new_tokens=max_tokens)
    async with TranscriptionClient(address) as client:
        await client.transcribe_file(path, options)
