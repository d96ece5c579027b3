"""``python -m experiments.soak``: thousands of sessions leak nothing, and long ones run to their end."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.servers.heap import check_heap_is_counted
from experiments.soak.census import Sample, growth_kib, leaked, take
from experiments.soak.servers import Servers, running_servers
from experiments.soak.sessions import Tally, run_sessions
from experiments.soak.streams import Stream, run_streams
from specwhisper.errors import SpecWhisperError

SESSIONS, QUICK_SESSIONS = 2_000, 400
PROCESSES = {  # settings of those to start
    "OMP_NUM_THREADS": "1",
    "PYTHONMALLOC": "malloc",
    # Chunks that a thread keeps for itself count as allocated, up to 200 KiB a thread.
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}
WARM_UP = 200
BATCH = 50  # sessions between two looks
MAX_GROWTH_KIB = 2.0  # per session
LEAK_BYTES = 8_192
NUM_STREAMS, STREAMS_S, QUICK_STREAMS_S = 16, 300.0, 20.0
SETTLE_S = 10.0
SHOWN_LINES = 20
COLUMNS = ("heap, MB", "resident, MB", "files", "threads", "tasks", "KiB per session")

Censuses = dict[str, list[Sample]]


@dataclass(frozen=True, slots=True)
class Soaked:
    """Outcome of many sessions.

    Attributes
    ----------
    censuses : of each server, taken between sessions; the first one when all was warm.
    """

    tally: Tally
    censuses: Censuses


def soak(
    sessions: Annotated[int | None, typer.Option(min=100, help="Short sessions. [default: 2000]")] = None,
    streams: Annotated[int, typer.Option(min=0, help="Streams in real time, at once.")] = NUM_STREAMS,
    seed: Seed = 0,
    quick: Quick = False,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Run short sessions, of which many are left at any moment, then streams for minutes.

    Target, draft server and gateway are real processes; the models are scripted. Between the sessions memory,
    open files, threads, tasks, slots and places are counted. At last servers that leak 8 KiB a session are
    looked at in the same way, which must be noticed of each. Exits with 1 if a session fails.
    """
    try:
        check_heap_is_counted()
    except SpecWhisperError as error:
        sys.exit(f"experiments.soak: {error}")
    os.environ |= PROCESSES
    console = open_console()
    num = sessions or (QUICK_SESSIONS if quick else SESSIONS)
    soaked, leaky, streamed = asyncio.run(
        measure(num, streams, QUICK_STREAMS_S if quick else STREAMS_S, seed, console)
    )
    print_censuses(soaked.censuses, console)
    held_bars = bars(soaked, leaky, streamed)
    broken = [*soaked.tally.errors, *leaky.tally.errors]
    broken += [line for stream in streamed for line in stream.violations]
    if json is not None:
        figures: dict[str, Any] = {
            "sessions": {str(kind): count for kind, count in soaked.tally.done.items()},
            "growth_kib": {name: growth_kib(samples) for name, samples in soaked.censuses.items()},
            "leak_control_growth_kib": {name: growth_kib(each) for name, each in leaky.censuses.items()},
            "bars": [str(bar) for bar in held_bars],
            "broken": broken,
            "censuses": {name: [asdict(s) for s in samples] for name, samples in soaked.censuses.items()},
            "leak_control": {name: [asdict(s) for s in each] for name, each in leaky.censuses.items()},
            "streams": [asdict(stream) for stream in streamed],
        }
        write_json(json, models={"target": "scripted", "draft": "scripted, 20 % wrong"}, figures=figures)
    all_hold = print_bars(held_bars, console) if check else True
    for line in broken[:SHOWN_LINES]:
        console.print(f"BROKEN: {line}", style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


async def measure(
    num: int, num_streams: int, streams_s: float, seed: int, console: Console
) -> tuple[Soaked, Soaked, list[Stream]]:
    """Run the sessions, the streams on the same servers, and the leak control."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        async with running_servers() as servers:
            soaked = await soak_in(servers, num, seed, progress, "sessions")
            task = progress.add_task(f"{num_streams} streams for {streams_s:g} s", total=None)
            streamed = await run_streams(servers.draft.address, num_streams, streams_s)
            progress.remove_task(task)
        async with running_servers() as servers:
            leaky = await soak_in(servers, num // 2, seed, progress, "leak control", LEAK_BYTES)
    return soaked, leaky, streamed


async def soak_in(
    servers: Servers, num: int, seed: int, progress: Progress, name: str, leak_bytes: int = 0
) -> Soaked:
    """Warm servers up, then run sessions, of which each may leak, and look at the servers again and again."""
    random, tally = Random(seed), Tally()
    censuses: Censuses = {each: [] for each in servers.all}
    task = progress.add_task(name, total=WARM_UP + num)
    for done in range(0, WARM_UP + num, BATCH):
        if done >= WARM_UP:
            await look(servers, tally, censuses)
        before = {each: tally.num_at(each) for each in servers.all}
        await run_sessions(servers, min(BATCH, WARM_UP + num - done), random, tally)
        if leak_bytes:
            for each, process in servers.all.items():
                await process.leak(tally.num_at(each) - before[each], leak_bytes)
        progress.update(task, completed=done + BATCH)
    await look(servers, tally, censuses)
    progress.remove_task(task)
    return Soaked(tally, censuses)


async def look(servers: Servers, tally: Tally, censuses: Censuses) -> None:
    """Look at every server, once no session holds anything any more."""
    for name, process in servers.all.items():
        samples, num_sessions = censuses[name], tally.num_at(name)
        sample = await take(process, num_sessions)
        until_s = asyncio.get_running_loop().time() + SETTLE_S
        while (sample.taken_slots or sample.sessions or (samples and leaked(samples[0], sample))) and (
            asyncio.get_running_loop().time() < until_s
        ):
            gc.collect()  # here are the clients: with calls that were left gRPC closes their connections
            await asyncio.sleep(0.05)
            sample = await take(process, num_sessions)
        samples.append(sample)


def bars(soaked: Soaked, leaky: Soaked, streamed: Sequence[Stream]) -> list[Bar]:
    """Hold the figures against what is promised."""
    num_errors, num_done = len(soaked.tally.errors), soaked.tally.done.total()
    found = [Bar("sessions that failed", num_errors, 1, f"{num_errors} of {num_done}")]
    for name, samples in soaked.censuses.items():
        growth = growth_kib(samples)
        found.append(Bar(f"growth of the {name}, KiB per session", growth, MAX_GROWTH_KIB, f"{growth:.2f}"))
        # Back to what there was when all was warm; but for threads, as pools fill when they are needed.
        baseline = replace(samples[0], threads=samples[len(samples) // 2].threads)
        left = leaked(baseline, samples[-1])
        found.append(Bar(f"left in the {name}", sum(left.values()), 1, str(left or "nothing")))
    for name, samples in leaky.censuses.items():
        growth = growth_kib(samples)
        shown = f"{MAX_GROWTH_KIB:g}, measured {growth:.2f} KiB per session"
        found.append(Bar(f"a leak of 8 KiB in the {name} is noticed", MAX_GROWTH_KIB, growth, shown))
    if streamed:
        wrong = sum(bool(stream.violations) or stream.num_reconnects > 0 for stream in streamed)
        lag_s = max(stream.lag_s for stream in streamed)
        found.append(Bar("streams that failed", wrong, 1, f"{wrong} of {len(streamed)}"))
        found.append(Bar("last text after the end of the audio, s", lag_s, 2.0, f"{lag_s:.2f} at most"))
    return found


def print_censuses(censuses: Censuses, console: Console) -> None:
    """Print what each server held first and last."""
    table = Table("server", *COLUMNS, box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, samples in censuses.items():
        first, last = samples[0], samples[-1]
        table.add_row(
            name,
            f"{first.heap_kib / 1024:.2f} to {last.heap_kib / 1024:.2f}",
            f"{first.resident_kib / 1024:.1f} to {last.resident_kib / 1024:.1f}",
            f"{first.files} to {last.files}",
            f"{first.threads} to {last.threads}",
            f"{first.tasks} to {last.tasks}",
            f"{growth_kib(samples):.2f}",
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(soak)
