"""``python -m experiments.steps``: a decoder's pass in each precision, against its floor and transformers."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers.utils import logging

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.bench.stats import ratio_of_medians, spread
from experiments.common.models.checkpoints import build_checkpoint, save_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.steps.against import compare, print_pairs
from experiments.steps.against import find_bars as tree_bars
from experiments.steps.floor import Machine, floor_s, measure_machine
from experiments.steps.loop import Loop
from experiments.steps.subjects import Ours, Subject, Transformers
from specwhisper.model.checkpoints.names import resolve
from specwhisper.model.onnx.rounding import sums_bytes_exactly
from specwhisper.model.threads import limit_threads, num_threads

HELD = 60  # tokens in each slot: the middle of a window of speech
ALONE = ((1, 1), (1, 5), (1, 17))
TOGETHER = ((8, 1), (8, 5))
PRECISIONS = ("float32", "bfloat16", *(("int8",) if sums_bytes_exactly() else ()))
THEIRS = "transformers"
DEMO_TARGET, DEMO_DRAFT = "demo-target", "demo-draft-tiny"
STEPS = 8  # in a row: a server steps one model again and again


@dataclass(slots=True)
class Row:
    """One decoder and one size of pass: seconds per pass, round after round, and the least they can be."""

    shape: str
    name: str
    rows: int
    width: int
    floor_s: float
    seconds: list[float] = field(default_factory=list)


def steps(
    shape: Annotated[
        list[str] | None,
        typer.Option(help=f"Of {', '.join(PUBLISHED)}; repeat for more. [default: tiny, small]"),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is repeated.")] = 7,
    threads: Annotated[int | None, typer.Option(min=1, help="Of every pass. [default: all cores]")] = None,
    against: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder of an earlier tree to compare with."),
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Time passes of decoders with random weights of true shape, in turns, in every precision.

    A pass appends tokens to each of some sessions, scores after every token, and rolls back. The
    floor is what must be read and computed at the speed that this machine reaches at best; the audio's
    encoder is not part of it. The last bar is what the target's loop adds to the decoder at eight sessions.
    """
    logging.set_verbosity_error()
    console = open_console()
    if unknown := set(shape or ()) - set(PUBLISHED):
        sys.exit(
            f"experiments.steps: there is no shape '{min(unknown)}': choose from {', '.join(PUBLISHED)}."
        )
    if threads is not None:
        limit_threads(threads)
    rounds = 3 if quick else rounds
    if against is not None:
        sys.exit(compare_trees(against, rounds, seed, json, console, check=check))
    machine = measure_machine()
    console.print(
        f"{num_threads()} threads read {machine.bytes_per_s / 1e9:.1f} GB/s and do "
        + ", ".join(f"{ops / 1e9:.0f} Gop/s in {dtype}" for dtype, ops in machine.ops_per_s.items()),
        highlight=False,
    )
    table: list[Row] = []
    for name in shape or ("tiny", "small"):
        table += measure_shape(name, machine, rounds, seed, console)
    overhead = {dtype: measure_loop(rounds, seed, dtype) for dtype in PRECISIONS if dtype != "bfloat16"}
    print_table(table, seed, console)
    bars = find_bars(table, overhead, seed)
    if json is not None:
        figures = {
            "threads": num_threads(),
            "floor": asdict(machine),
            "rows": [asdict(row) for row in table],
            "loop": overhead,
            "bars": list(map(str, bars)),
        }
        write_json(json, models={"weights": "random", "held_tokens": HELD}, figures=figures)
    sys.exit(0 if not check or print_bars(bars, console) else 1)


def compare_trees(
    tree: Path, rounds: int, seed: int, json: Path | None, console: Console, *, check: bool
) -> int:
    """Compare with an earlier tree's decoders; return the exit status."""
    with TemporaryDirectory() as name:
        shape = replace(PUBLISHED["tiny"], encoder_layers=1, seed=seed)
        folders = {"tiny": save_checkpoint(shape, Path(name) / "tiny")}
        folders |= {model: Path(resolve(model)) for model in (DEMO_TARGET, DEMO_DRAFT)}
        pairs = compare(folders, tree, rounds, seed, console)
    print_pairs(pairs, seed, console)
    bars = tree_bars(pairs, DEMO_TARGET, DEMO_DRAFT, seed)
    if json is not None:
        figures = {"pairs": [asdict(pair) for pair in pairs], "bars": list(map(str, bars))}
        write_json(json, models={"earlier": str(tree.name), "held_tokens": HELD}, figures=figures)
    return 0 if not check or print_bars(bars, console) else 1


def measure_shape(name: str, machine: Machine, rounds: int, seed: int, console: Console) -> list[Row]:
    """Time every precision and size of one shape, in a new order each round."""
    model, checkpoint = build_checkpoint(replace(PUBLISHED[name], encoder_layers=1, seed=seed), name)
    subjects: dict[str, Subject] = {THEIRS: Transformers(model, held=HELD)}
    subjects |= {dtype: Ours(replace(checkpoint, dtype=dtype), slots=8, held=HELD) for dtype in PRECISIONS}
    found = []
    for subject in subjects:
        dtype = "float32" if subject == THEIRS else subject
        for rows, width in ALONE if subject == THEIRS else (*ALONE, *TOGETHER):
            least_s = floor_s(model.config, dtype, machine, rows=rows, width=width, held=HELD)
            found.append(Row(name, subject, rows, width, least_s))
    random = np.random.default_rng(seed)
    for _ in track(range(rounds), description=name, console=console, transient=True):
        for index in random.permutation(len(found)):
            row = found[index]
            step = subjects[row.name].step
            for _ in range(2):
                step(row.rows, row.width)
            started_s = time.perf_counter()
            for _ in range(STEPS):
                step(row.rows, row.width)
            row.seconds.append((time.perf_counter() - started_s) / STEPS)
    del subjects, model, checkpoint
    gc.collect()
    return found


def measure_loop(rounds: int, seed: int, dtype: str) -> Mapping[str, list[float]]:
    """Time whole passes of eight sessions on whisper-small's decoder, and the decoder inside them."""
    _, checkpoint = build_checkpoint(replace(PUBLISHED["small"], encoder_layers=1, seed=seed), "small")
    checkpoint = replace(checkpoint, dtype="int8") if dtype == "int8" else checkpoint
    loop = Loop(checkpoint, sessions=8, width=5, seed=seed)
    loop.measure(2)
    total_s, forward_s = loop.measure(2 * rounds)
    return {"total_s": total_s, "forward_s": forward_s}


def find_bars(table: list[Row], loops: Mapping[str, Mapping[str, list[float]]], seed: int) -> list[Bar]:
    """Hold the figures against what the engine is to reach."""
    by_key = {(row.shape, row.name, row.rows, row.width): row for row in table}
    bars = []
    for shape, width, bound in (("tiny", 1, 0.4), ("small", 5, 0.5)):
        ours, theirs = by_key.get((shape, "int8", 1, width)), by_key.get((shape, THEIRS, 1, width))
        if ours and theirs:
            ratio = ratio_of_medians(ours.seconds, theirs.seconds, seed=seed)
            name = f"int8 pass of {width} on {shape} shape over transformers' in float32"
            bars.append(Bar(name, ratio.high, bound, str(ratio)))
    for dtype in PRECISIONS:
        if row := by_key.get(("small", dtype, 8, 5)):
            multiple = spread([seconds / row.floor_s for seconds in row.seconds])
            name = f"pass of 8 sessions x 5 tokens on small shape, {dtype}, over its floor"
            bars.append(Bar(name, multiple.median, 1.25, f"{multiple:.2f}"))
    for dtype, loop in loops.items():
        share = spread([1 - f / t for t, f in zip(loop["total_s"], loop["forward_s"], strict=True)])
        name = f"the loop's own share of a pass of 8 sessions, {dtype}"
        bars.append(Bar(name, share.median, 0.1, f"{share:.3f}"))
    return bars


def print_table(table: list[Row], seed: int, console: Console) -> None:
    """Print every row beside its floor and, where it has one, its counterpart in transformers."""
    theirs = {(row.shape, row.rows, row.width): row for row in table if row.name == THEIRS}
    shown = Table(
        "shape", "decoder", "sessions x tokens", "ms (quartiles)", "floor, ms", "times", "/ transformers"
    )
    for row in sorted(table, key=lambda row: (row.shape, row.rows, row.width)):
        beside = theirs.get((row.shape, row.rows, row.width))
        ratio = ratio_of_medians(row.seconds, beside.seconds, seed=seed) if beside else None
        shown.add_row(
            row.shape,
            row.name,
            f"{row.rows} x {row.width}",
            f"{spread([seconds * 1e3 for seconds in row.seconds]):.2f}",
            f"{row.floor_s * 1e3:.2f}",
            f"{np.median(row.seconds) / row.floor_s:.2f}",
            str(ratio or ""),
        )
    console.print(shown)


if __name__ == "__main__":
    typer.run(steps)
