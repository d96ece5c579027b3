"""``python -m experiments.exactness``: every option, pairs and target-only against transformers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.exactness.fuzz.drawing import all_values, drawn
from experiments.exactness.fuzz.report import bars_of_fuzzed, is_wrong, table_of_fuzzed
from experiments.exactness.fuzz.running import run_drawn
from experiments.exactness.matrix import Result, facts
from experiments.exactness.reduced import Reduced
from experiments.exactness.rows import Row, decoded, in_full, in_reduced, rows
from specwhisper.types import DTYPES

QUICK_FUZZED = 30
COLUMNS = (
    "row",
    "windows",
    "retried",
    "skipped",
    "tokens",
    "ties",
    "= target-only",
    "= transformers",
    "assisted",
)
REDUCED_COLUMNS = (
    "row",
    "recordings",
    "tokens compared",
    "differences",
    "per thousand",
    "margin there (median, largest)",
    "recordings that differ from float32",
)


def exactness(
    markdown: Annotated[
        Path | None, typer.Option(dir_okay=False, help="File of the table in Markdown.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="float32, or bfloat16, float16 or int8 to report its differences.")
    ] = "float32",
    only: Annotated[str, typer.Option(help="Only rows whose name contains this.")] = "",
    num_fuzzed: Annotated[
        int | None,
        typer.Option(min=0, help="Checkpoints with random configs. [default: each value twice; quick: 30]"),
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Decode random-weight checkpoints under every option and compare the tokens.

    Each row is decoded by target-only, by four pairs in four modes, by plain transformers and by its assisted
    generation. Checkpoints with random values in their config.json and generation_config.json follow. Exits
    with 1 if any of our texts differs. In reduced precision the pairs are compared with target-only; the
    report shows how often they differ, and how close the choice was.
    """
    logging.set_verbosity_error()
    console = open_console()
    if dtype not in DTYPES:
        sys.exit(f"experiments.exactness: unknown dtype '{dtype}': choose one of {', '.join(DTYPES)}.")
    if dtype != "float32":
        if check:
            sys.exit("experiments.exactness: the bars hold in float32; leave --check out.")
        # Without true shapes: a billion weights in reduced precision take a CPU too long.
        chosen = [row for row in rows(quick, seed, only) if "true shapes" not in row.name]
        in_reduced_precision(dtype, chosen, json, markdown, console)
        return
    if num_fuzzed is None:
        num_fuzzed = QUICK_FUZZED if quick else 2 * len(all_values())
    results = decoded(in_full, rows(quick, seed, only), console)
    fuzzed = decoded(run_drawn, [case for case in drawn(num_fuzzed, seed) if only in case.name], console)
    if results:
        console.print(table_of(results))
    if fuzzed:
        console.print(table_of_fuzzed(fuzzed))
    bars = [*bars_of(results, is_whole=not (quick or only)), *bars_of_fuzzed(fuzzed)]
    if json is not None:
        write_json(
            json,
            models={},
            figures={
                "rows": [facts(r) for r in results],
                "fuzzed": [each.__dict__ for each in fuzzed],
                "bars": list(map(str, bars)),
            },
        )
    if markdown is not None:
        markdown.write_text(to_markdown(results))
    for result in results:
        for line in (*result.split_differences, *result.oracle_differences):
            console.print(f"DIFFERENT: {result.name}: {line}", style="red", soft_wrap=True, highlight=False)
    for each in filter(is_wrong, fuzzed):
        line = f"{each.outcome.upper()}: {each.name}: {'; '.join(each.notes)}"
        console.print(line, style="red", soft_wrap=True, highlight=False, markup=False)
    all_hold = print_bars(bars, console) if check else True
    sys.exit(0 if all_hold and not any(map(is_broken, results)) and not any(map(is_wrong, fuzzed)) else 1)


def in_reduced_precision(
    dtype: str,
    chosen: Sequence[Row],
    json: Path | None,
    markdown: Path | None,
    console: Console,
) -> None:
    """Report the differences of reduced precision."""
    results = decoded(partial(in_reduced, dtype=dtype), chosen, console)
    lines = [reduced_cells(result) for result in [*results, added_up(results)]]
    table = Table(*REDUCED_COLUMNS, title=f"{dtype}, CPU: pairs against target-only")
    for line in lines:
        table.add_row(*line)
    console.print(table)
    if json is not None:
        write_json(json, models={}, figures={"dtype": dtype, "rows": [r.__dict__ for r in results]})
    if markdown is not None:
        markdown.write_text(markdown_table([REDUCED_COLUMNS, *lines]))


def added_up(results: Sequence[Reduced]) -> Reduced:
    """Return the sums of all rows."""
    return Reduced(
        "all",
        sum(result.num_recordings for result in results),
        sum(result.num_tokens for result in results),
        [margin for result in results for margin in result.margins],
        sum(result.num_from_float32 for result in results),
    )


def reduced_cells(result: Reduced) -> list[str]:
    """Return the cells of a row."""
    known = [margin for margin in result.margins if margin == margin]
    return [
        result.name,
        str(result.num_recordings),
        str(result.num_tokens),
        str(len(result.margins)),
        f"{1000 * len(result.margins) / result.num_tokens:.2f}" if result.num_tokens else "",
        f"{median(known):.3f}, {max(known):.3f}" if known else "",
        str(result.num_from_float32),
    ]


def is_broken(result: Result) -> bool:
    """Return whether one of our texts differs."""
    return bool(result.split_differences or result.oracle_differences)


def bars_of(results: Sequence[Result], *, is_whole: bool) -> list[Bar]:
    """Return the bars of the matrix."""
    split = sum(len(result.split_differences) for result in results)
    oracle = sum(len(result.oracle_differences) for result in results)
    decoded_windows = sum(result.attempts for result in results)
    bars = [
        Bar("texts of a pair that differ from the target's", split, 1, str(split)),
        Bar("texts of ours that differ from transformers'", oracle, 1, str(oracle)),
    ]
    if is_whole:
        short_of = max(0, 400 - decoded_windows)
        bars.append(Bar("decoded windows short of 400", short_of, 1, f"{decoded_windows} decoded"))
    return bars


def cells(result: Result) -> list[str]:
    """Return the cells of a row."""
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
    """Return the matrix as a table."""
    table = Table(*COLUMNS, title="Exactness, float32, CPU")
    for result in results:
        table.add_row(*cells(result))
    return table


def to_markdown(results: Sequence[Result]) -> str:
    """Return the matrix in Markdown."""
    return markdown_table([COLUMNS, *map(cells, results)])


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Return lines as a Markdown table; the first names the columns."""
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in ruled)


if __name__ == "__main__":
    typer.run(exactness)
