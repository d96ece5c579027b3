"""``sweep``: time per token over a link, by round trip, draft length, mode and how speech sounds."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from experiments.common.audio.conditions import Condition
from experiments.common.audio.samples import BUNDLED, load_samples
from experiments.common.bench.options import Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.latency.cells import (
    CHOSEN,
    TARGET_ONLY,
    Arm,
    cells_of,
    parse_conditions,
    parse_gammas,
    parse_modes,
    parse_times,
)
from experiments.latency.grid import Request, measure, spoken_in
from experiments.latency.networks.backends import NETWORKS
from experiments.latency.pair import Pair
from experiments.latency.store import Grid, Store
from experiments.latency.summary import DECODING, WHOLE, Summary, best_gamma
from specwhisper.errors import SpecWhisperError
from specwhisper.types import Mode

GRID = Path("latency.jsonl")
SHORTEST = tuple(BUNDLED / name for name in ("01_phone_call.flac", "07_a_letter.flac"))
DraftDtype = Annotated[str, typer.Option(help="Numeric type of the draft's weights.")]
Recordings = Annotated[
    list[Path] | None,
    typer.Option("--audio", exists=True, dir_okay=False, help="A recording; repeat for more. [default: two]"),
]
GridFile = Annotated[Path, typer.Option("--grid", dir_okay=False, help="File that `sweep` wrote.")]


def sweep(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    draft_dtype: DraftDtype = "int8",
    audio: Recordings = None,
    rtt_ms: Annotated[str, typer.Option(help="Round trips in milliseconds.")] = "0,5,10,25,50,100,200,400",
    gamma: Annotated[
        str, typer.Option(help="Draft lengths; 'chosen': each session chooses its own.")
    ] = "chosen",
    modes: Annotated[str, typer.Option(help="Modes beside target-only.")] = "sync,pipelined,full,one-process",
    conditions: Annotated[str, typer.Option(help="How the recordings sound.")] = ",".join(Condition),
    hints: Annotated[
        bool, typer.Option(help="Also with a text of which a tenth of the words is wrong.")
    ] = True,
    network: Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}.")] = "tun",
    jitter_ms: Annotated[float, typer.Option(help="Mean queueing delay each way, exponential, in ms.")] = 0.0,
    loss: Annotated[float, typer.Option(help="Share of packets lost, each way.")] = 0.0,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each cell.")] = 5,
    out: Annotated[
        Path, typer.Option(dir_okay=False, help="File of the runs; a later call adds to it.")
    ] = GRID,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure time per token over a link, by round trip, draft length, mode and how speech sounds.

    The target server has one core; draft server, client and network share the other. Cells are interleaved.
    Every text is compared with the target's own, and the sweep fails if one differs. A later call with other
    cells adds them to the file.
    """
    console = open_console()
    try:
        if quick:
            rtt_ms, modes, hints, conditions = "0,100", "sync,full,one-process", False, "clean"
            repeats = min(repeats, 3)
        cells = cells_of(
            parse_conditions(conditions),
            parse_times(rtt_ms, "--rtt-ms"),
            parse_modes(modes),
            parse_gammas(gamma),
            hints=hints,
        )
        spoken = spoken_in(load_samples(audio or SHORTEST), list(Condition), seed)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and networks are stopped
        request = Request(
            Pair(target, draft, draft_dtype), spoken, cells, repeats, seed, network, jitter_ms, loss
        )
        found = measure(request, Store(out), console)
        all_hold = report(found, console, json=json, check=check)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    sys.exit(0 if all_hold else 1)


def show(grid: GridFile = GRID, json: JsonFile = None, check: Check = False) -> None:
    """Print a grid's tables and bars; fail if a text was not the target's."""
    try:
        all_hold = report(Store(grid).load(), open_console(), json=json, check=check)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    sys.exit(0 if all_hold else 1)


def report(grid: Grid, console: Console, *, json: Path | None, check: bool) -> bool:
    """Print a grid; return whether all texts are the target's and, with ``check``, all bars hold."""
    summary = Summary(grid)
    for condition, counts in summary.speech().items():
        console.print(
            f"{condition}: the draft is right in {counts['acceptance']:.0%} of {counts['num_tokens']} tokens "
            f"in runs of {counts['mean_run']:.0f}, after an error in {counts['realigned']:.0%}.",
            highlight=False,
            soft_wrap=True,
        )
    conditions = list(dict.fromkeys(cell.condition for cell in summary.cells))
    for condition in conditions:
        for what, title in ((DECODING, "decoding"), (WHOLE, "whole utterance")):
            print_times(summary, condition, what, f"{condition}: {title}, over target-only", console)
        print_gammas(summary, condition, console)
    for run in grid.different:
        console.print(f"DIFFERENT: {run}: the text differs from the target's", style="red", highlight=False)
    if json is not None:
        write_json(json, models=grid.header["pair"], figures=summary.facts(predictions=True))
    return (print_bars(summary.bars(), console) if check else True) and not grid.different


def print_times(summary: Summary, condition: Condition, what: str, title: str, console: Console) -> None:
    """Print a row per arm whose length is chosen, and a column per round trip."""
    here = [cell for cell in summary.cells if cell.condition == condition and cell.arm.gamma == CHOSEN]
    round_trips_ms = sorted({cell.rtt_ms for cell in here})
    table = Table(title=title, title_justify="left")
    for name in ("", *(f"{rtt_ms:g} ms" for rtt_ms in round_trips_ms)):
        table.add_column(name, justify="right")
    for arm in sorted({cell.arm for cell in here} - {TARGET_ONLY}, key=_order):
        row = []
        for rtt_ms in round_trips_ms:
            cell = next((each for each in here if (each.arm, each.rtt_ms) == (arm, rtt_ms)), None)
            ratio = cell and summary.over(cell, cell.target_only, what)
            row.append(str(ratio or ""))
        table.add_row(str(arm), *row)
    console.print(table)


def print_gammas(summary: Summary, condition: Condition, console: Console) -> None:
    """Print the best set draft length of each mode, if some were measured."""
    for mode in (Mode.SYNC, Mode.PIPELINED, Mode.FULL):
        round_trips_ms = sorted({cell.rtt_ms for cell in summary.cells})
        best = {rtt_ms: best_gamma(summary, condition, mode, rtt_ms) for rtt_ms in round_trips_ms}
        shown = [f"{ms:g} ms: {found[0]} ({found[1]:.2f})" for ms, found in best.items() if found]
        if shown:
            console.print(f"{condition}, best gamma of {mode}: {'; '.join(shown)}", highlight=False)


def _order(arm: Arm) -> tuple[int, bool]:
    return list(Mode).index(arm.mode), arm.has_hint
