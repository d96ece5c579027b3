"""``python -m experiments.exactness``: every option, the pair and the target alone against transformers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table
from transformers.utils import logging

from experiments.common.args import Check, JsonFile, Quick, Seed
from experiments.common.report import Bar, open_console, print_bars, write_json
from experiments.exactness.cases import BATCHES, OPTIONS, SHAPES, WHISPERS, Case
from experiments.exactness.matrix import Result, facts, run_row
from experiments.exactness.prepared import Prepared, prepared

QUICK = ("tiny-like", "no-timestamps", "prompt", "no-speech", "language-detection", "sampling-seed-1")
COLUMNS = (
    "row",
    "windows",
    "retried",
    "skipped",
    "tokens",
    "ties",
    "= target alone",
    "= transformers",
    "assisted",
)


def exactness(
    markdown: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Also write the table into this file.")
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Decode random-weight checkpoints under every option, and compare token for token.

    Each row is decoded by the target alone, by four pairs in four modes, by plain transformers and by its
    assisted generation. Exits with 1 if any text of ours differs.
    """
    logging.set_verbosity_error()
    console = open_console()
    results = [
        run_row(name, made, num_slots)
        for name, made, num_slots in track(
            rows(quick, seed), description="decoding", console=console, transient=True
        )
    ]
    console.print(table_of(results))
    bars = bars_of(results, quick)
    if json is not None:
        write_json(
            json, models={}, figures={"rows": [facts(r) for r in results], "bars": list(map(str, bars))}
        )
    if markdown is not None:
        markdown.write_text(to_markdown(results))
    for result in results:
        for line in (*result.split_differences, *result.oracle_differences):
            console.print(f"DIFFERENT: {result.name}: {line}", style="red", soft_wrap=True, highlight=False)
    all_hold = print_bars(bars, console) if check else True
    sys.exit(0 if all_hold and not any(map(is_broken, results)) else 1)


def rows(quick: bool, seed: int) -> list[tuple[str, Prepared, int]]:
    """Give every row: its name, its models, and how many recordings are decoded side by side."""
    cases = [case for case in (*SHAPES, *OPTIONS, *WHISPERS) if not quick or case.name in QUICK]
    made = [(case.name, prepared(reseeded(case, seed)), 2) for case in cases]
    if not quick:
        for case in BATCHES:
            made += [(f"{case.name}, batch {n}", prepared(case), n) for n in (1, 4, 8)]
    return made


def reseeded(case: Case, seed: int) -> Case:
    """Give the case with other weights and other recordings."""
    return case if seed == 0 else replace(case, shape=replace(case.shape, seed=case.shape.seed + 1000 * seed))


def is_broken(result: Result) -> bool:
    """Whether a text of ours differs."""
    return bool(result.split_differences or result.oracle_differences)


def bars_of(results: Sequence[Result], quick: bool) -> list[Bar]:
    """Hold the matrix against what is promised."""
    split = sum(len(result.split_differences) for result in results)
    oracle = sum(len(result.oracle_differences) for result in results)
    windows = sum(result.windows for result in results)
    bars = [
        Bar("texts of a pair that differ from the target's", split, 1, str(split)),
        Bar("texts of ours that differ from transformers'", oracle, 1, str(oracle)),
    ]
    if not quick:
        bars.append(Bar("windows short of 400", max(0, 400 - windows), 1, f"{windows} windows"))
    return bars


def cells(result: Result) -> list[str]:
    """Lay a row out for the table."""
    return [
        result.name,
        str(result.windows),
        str(result.attempts - result.windows - result.skipped),
        str(result.skipped),
        str(result.tokens),
        str(result.ties),
        "differs" if result.split_differences else "same",
        "differs" if result.oracle_differences else "same",
        result.assisted,
    ]


def table_of(results: Sequence[Result]) -> Table:
    """Draw the matrix."""
    table = Table(*COLUMNS, title="Exactness, float32, CPU")
    for result in results:
        table.add_row(*cells(result))
    return table


def to_markdown(results: Sequence[Result]) -> str:
    """Write the matrix as a table."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *map(cells, results)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    typer.run(exactness)
