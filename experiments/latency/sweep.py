"""``sweep``: time per token over a link, by round trip, draft length, mode and how speech sounds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.common.audio.conditions import Condition
from experiments.common.audio.samples import BUNDLED, Sample, load_samples
from experiments.common.bench.program import Draft, Program, Target, program
from experiments.common.bench.report import machine_facts, version_facts
from experiments.common.servers.processes import first_two_cores, on_cores
from experiments.latency.cells import (
    CHOSEN,
    MAX_NETWORK_SHARE,
    TARGET_ONLY,
    Arm,
    Cell,
    Grid,
    Run,
    Store,
    cells_of,
    in_order,
    parse_conditions,
    parse_gammas,
    parse_modes,
    parse_round_trips,
)
from experiments.latency.lab import Lab, Pair, Spoken, measure_costs, open_lab, spoken_in
from experiments.latency.link import Link, open_link
from experiments.latency.summary import DECODING, WHOLE, Summary
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.types import Mode

SHORTEST = tuple(BUNDLED / name for name in ("01_phone_call.flac", "07_a_letter.flac"))
MAX_TRIES = 3  # then a run with a busier network is kept, but not counted


@program
def sweep(
    given: Program,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="A recording; repeat for more. [default: two]"),
    ] = None,
    rtt_ms: Annotated[str, typer.Option(help="Round trips in milliseconds.")] = "0,5,10,25,50,100,200,400",
    gamma: Annotated[
        str, typer.Option(help="Draft lengths; 'chosen': each session chooses its own.")
    ] = "chosen",
    modes: Annotated[str, typer.Option(help="Modes beside target-only.")] = "sync,pipelined,full,one-process",
    conditions: Annotated[str, typer.Option(help="How the recordings sound.")] = ",".join(Condition),
    hints: Annotated[
        bool, typer.Option(help="Also with a text of which a tenth of the words is wrong.")
    ] = True,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each cell.")] = 5,
    out: Annotated[
        Path, typer.Option(dir_okay=False, help="File of the runs; a later call adds to it.")
    ] = Path("latency.grid"),
) -> None:
    """Measure time per token over a link, by round trip, draft length, mode and how speech sounds.

    The target server has one core; draft server, client and network share the other. Cells are interleaved.
    Every text is compared with the target's own, and the sweep fails if one differs. A later call with other
    cells adds them to the file; tables, bars and JSON are of the whole file.
    """
    if given.quick:
        rtt_ms, modes, hints, conditions = "0,100", "sync,full,one-process", False, "clean"
        repeats = min(repeats, 3)
    cells = cells_of(
        parse_conditions(conditions),
        parse_round_trips(rtt_ms),
        parse_modes(modes),
        parse_gammas(gamma),
        hints=hints,
    )
    spoken = spoken_in(load_samples(audio or SHORTEST), list(Condition), given.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and networks are stopped
    runs = list(in_order(cells, repeats, given.seed))
    grid = measure(Pair(target, draft), spoken, runs, Store(out), given.console)
    summary = Summary(grid)
    for condition in dict.fromkeys(cell.condition for cell in summary.cells):
        for what, title in ((DECODING, "decoding"), (WHOLE, "whole utterance")):
            print_times(summary, condition, what, f"{condition}: {title}, over target-only", given.console)
    wrong = [f"{run}: the text differs from the target's" for run in grid.different]
    given.end(grid.header["pair"], summary.facts() if given.json else {}, list(summary.bars()), wrong)


def measure(
    pair: Pair,
    spoken: Spoken,
    runs: Sequence[tuple[int, Cell]],
    store: Store,
    console: Console,
) -> Grid:
    """Measure the runs that the store does not have yet; each recording has a name of its own."""
    machine, cores = machine_facts(), first_two_cores()  # before this thread is pinned to a core
    samples = [sample for each in spoken.values() for sample in each]
    with ExitStack() as stack:
        trace = pair.record(samples)
        costs = measure_costs(pair, samples)
        with on_cores(cores[1:]):
            link = stack.enter_context(open_link())
        console.print(f"Starting {', '.join(pair.facts().values())} ...", highlight=False)
        lab = stack.enter_context(open_lab(pair, link))
        lab.connect(0.0)
        texts = {sample.name: lab.transcribe(TARGET_ONLY, sample).tokens for sample in samples}
        vocabulary = load_checkpoint(pair.target).vocabulary
        lab.words = {name: vocabulary.decode(tokens).split() for name, tokens in texts.items()}
        header: dict[str, Any] = {
            "pair": pair.facts(),
            "samples": {condition: [sample.name for sample in each] for condition, each in spoken.items()},
            "texts": {name: list(tokens) for name, tokens in texts.items()},
            "trace": trace,
            "costs": costs,
            "machine": machine,
            "versions": version_facts(),
        }
        found = store.begin(header)
        left = [
            (repeat, cell, sample)
            for repeat, cell in runs
            for sample in spoken[cell.condition]
            if (repeat, cell, sample.name) not in found.done
        ]
        if found.runs:
            console.print(f"{len(found.done)} runs exist already; {len(left)} are left.", highlight=False)
        connected = None
        for repeat, cell, sample in track(left, "measuring", console=console, transient=True):
            if connected != (repeat, cell.rtt_ms):
                connected = repeat, cell.rtt_ms
                lab.connect(cell.rtt_ms)
            facts = run_cell(lab, link, cell, sample, texts[sample.name])
            facts["commit"] = header["versions"]["specwhisper"]
            store.append(Run(repeat, cell, sample.name, facts))
    return store.load()


def run_cell(lab: Lab, link: Link, cell: Cell, sample: Sample, tokens: Sequence[int]) -> dict[str, Any]:
    """Transcribe; repeat where the network used too much of a core. Return the last measurement.

    Parameters
    ----------
    tokens : the target's own text. One attempt with another text makes the run different.
    """
    is_same = True
    for _ in range(MAX_TRIES):
        cpu_s = link.cpu_s()
        timed = lab.transcribe(cell.arm, sample)
        share = (link.cpu_s() - cpu_s) / timed.wall_s
        is_same = is_same and timed.tokens == tuple(tokens)
        if share <= MAX_NETWORK_SHARE:
            break
    return {
        "decoding_s": timed.decoding_s,
        "wall_s": timed.wall_s,
        "num_tokens": timed.statistics.num_committed,
        "network_share": share,
        "is_same": is_same,
        "load": os.getloadavg()[0],
        "statistics": asdict(timed.statistics),
    }


def print_times(summary: Summary, condition: Condition, what: str, title: str, console: Console) -> None:
    here = {(cell.arm, cell.rtt_ms): cell for cell in summary.cells if cell.condition == condition}
    round_trips_ms = sorted({rtt_ms for _, rtt_ms in here})
    table = Table("", *(f"{rtt_ms:g} ms" for rtt_ms in round_trips_ms), title=title, title_justify="left")
    for arm in sorted({arm for arm, _ in here} - {TARGET_ONLY}, key=_order):
        found = [here.get((arm, rtt_ms)) for rtt_ms in round_trips_ms]
        ratios = [cell and summary.over(cell, cell.target_only, what) for cell in found]
        table.add_row(str(arm), *(str(ratio or "") for ratio in ratios))
    console.print(table)


def _order(arm: Arm) -> tuple[int, bool, bool, int]:
    return list(Mode).index(arm.mode), arm.has_hint, arm.gamma != CHOSEN, arm.gamma
