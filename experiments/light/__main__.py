"""``python -m experiments.light``: what a draft server on CPUs needs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.models.checkpoints import save_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.common.servers.processes import available_cores
from experiments.light.disk import installed_mb
from experiments.light.measure import Footprint, Live, footprint, live
from specwhisper.errors import SpecWhisperError

SHAPE = "tiny"
DEMO, INT8 = "demo-draft-tiny", f"{SHAPE}'s shape in int8, cut windows"
LEAST_LISTED_MB = 3.0
# Room on disk, memory of both servers, time to start, and live sessions.
MAX_DISK_MB, MAX_DEMO_MB, MAX_INT8_MB, MAX_START_S, MIN_SESSIONS = 350.0, 200.0, 300.0, 1.5, 8


def light(
    audio: Audio = None,
    sessions: Annotated[int, typer.Option(min=1, help="Live sessions at once.")] = MIN_SESSIONS,
    starts: Annotated[int, typer.Option(min=1, help="How often each server is started.")] = 5,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure a draft server on one core: disk, memory, start, and the core's share that live sessions take.

    Live sessions run the demo's draft, whose tokens are accepted, and beside it a model of tiny's shape with
    random weights that repeats all it does. The core pays for both. The target is as light, on another core.
    """
    console = open_console()
    cores = available_cores()
    sample = min(load_samples(audio), key=lambda sample: len(sample.pcm))
    disk = installed_mb("draft")
    found: dict[str, Live] = {}
    try:
        with TemporaryDirectory() as name:
            folder = save_checkpoint(replace(PUBLISHED[SHAPE], seed=seed), Path(name) / SHAPE)
            tiny = ("--draft-model", str(folder), "--dtype", "int8")
            starts = 2 if quick else starts
            measured = partial(footprint, sample=sample, starts=starts, cores=cores)
            footprints = [
                measured(DEMO, "demo-target", ("--draft-model", DEMO), has_limit=False),
                measured(INT8, str(folder), (*tiny, "--cut-windows"), has_limit=True),
            ]
            for dtype in ("int8",) if quick else ("float32", "int8"):
                found[dtype] = live(folder, sample, sessions, dtype=dtype, cores=cores)
    except SpecWhisperError as error:
        sys.exit(f"experiments.light: {error}")
    print_figures(disk, footprints, found, console)
    bars = find_bars(disk, footprints, found)
    if json is not None:
        figures = {
            "disk_mb": disk,
            "footprints": [asdict(each) for each in footprints],
            "live": {title: asdict(each) for title, each in found.items()},
            "bars": list(map(str, bars)),
        }
        write_json(json, models={"draft": DEMO, "beside": f"random {SHAPE}"}, figures=figures)
    sys.exit(0 if not check or print_bars(bars, console) else 1)


def find_bars(
    disk: Mapping[str, float], footprints: Sequence[Footprint], found: Mapping[str, Live]
) -> list[Bar]:
    """Hold the figures against what a light draft server is to need."""
    demo, int8 = footprints
    bars = [
        Bar(
            "packages of the extra draft, MB on disk",
            total := sum(disk.values()),
            MAX_DISK_MB,
            f"{total:.0f}",
        ),
        Bar(f"{demo.name}, MB resident", demo.resident_mb, MAX_DEMO_MB, f"{demo.resident_mb:.0f}"),
        Bar(f"{int8.name}, MB resident", int8.resident_mb, MAX_INT8_MB, f"{int8.resident_mb:.0f}"),
    ]
    for each in footprints:
        bars.append(Bar(f"{each.name}, s to start", s := median(each.start_s), MAX_START_S, f"{s:.2f}"))
    best = max(found.values(), key=lambda one: one.per_core)
    bars.append(
        Bar(
            f"core's share of a live session of {SHAPE}'s shape, at best",
            1 / best.per_core,
            1 / MIN_SESSIONS,
            f"{1 / best.per_core:.3f}, or {best.per_core:.1f} sessions",
        )
    )
    return bars


def print_figures(
    disk: Mapping[str, float], footprints: Sequence[Footprint], found: Mapping[str, Live], console: Console
) -> None:
    """Print what takes room, then what servers need, then what live sessions take."""
    listed = {name: size for name, size in disk.items() if size >= LEAST_LISTED_MB}
    rest = sum(disk.values()) - sum(listed.values())
    console.print(
        f"Packages of the extra draft, MB: {', '.join(f'{n} {s:.0f}' for n, s in listed.items())}, "
        f"the other {len(disk) - len(listed)} {rest:.0f}; together {sum(disk.values()):.0f}.",
        highlight=False,
    )
    table = Table("draft server, one session used", "MB resident", "s to start")
    for each in footprints:
        table.add_row(each.name, f"{each.resident_mb:.0f}", ", ".join(f"{s:.2f}" for s in each.start_s))
    console.print(table)
    table = Table(
        f"live sessions, {SHAPE}'s shape",
        "at once",
        "of a core",
        "a core's sessions",
        "drafted",
    )
    for title, one in found.items():
        cells = f"{one.core_share:.2f}", f"{one.per_core:.1f}", f"{one.drafted:.0%}"
        table.add_row(title, str(one.num_sessions), *cells)
    console.print(table)


if __name__ == "__main__":
    typer.run(light)
