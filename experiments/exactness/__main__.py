"""``python -m experiments.exactness``: every option, pairs and target-only against transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer
from rich.table import Table

from experiments.common.bench.program import Program, program
from experiments.common.bench.report import Bar, none
from experiments.exactness.fuzz import Outcome, all_values, bars_of_fuzzed, drawn, run_drawn
from experiments.exactness.matrix import Result, decoded, rows, run_reduced, run_row
from specwhisper.types import DTYPES

QUICK_FUZZED = 30
MIN_DECODED = 400
COLUMNS = ("row", "windows", "retried", "skipped", "tokens", "ties", "= target-only", "= transformers")
REDUCED_COLUMNS = ("row", "recordings", "tokens", "differences", "largest margin", "unlike float32")
Only = Annotated[str, typer.Option(help="Only rows whose name contains this.")]

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
@program
def matrix(given: Program, only: Only = "") -> None:
    """Decode random-weight checkpoints under every option and compare the tokens.

    Each row is decoded by target-only, by four pairs in four modes, and by plain transformers. Exits with 1
    if any of our texts differs.
    """
    chosen = rows(quick=given.quick, seed=given.seed, only=only)
    results = decoded(run_row, chosen, given.console)
    table = Table(*COLUMNS, title="Exactness, float32, CPU")
    for one in results:
        counts = one.windows, one.attempts - one.windows - one.skipped, one.skipped, one.tokens, one.ties
        same = ("differs" if lines else "same" for lines in (one.split_differences, one.oracle_differences))
        table.add_row(one.name, *map(str, counts), *same)
    given.console.print(table)
    wrong = [f"{r.name}: {line}" for r in results for line in (*r.split_differences, *r.oracle_differences)]
    bars = bars_of(results, is_whole=not (given.quick or only))
    given.end({}, {"rows": [vars(r) for r in results]}, bars, wrong)


@app.command()
@program
def fuzz(given: Program) -> None:
    """Decode checkpoints with random values in config.json and generation_config.json, each value twice."""
    num = given.choose(QUICK_FUZZED, 2 * len(all_values()))
    results = decoded(run_drawn, list(drawn(num, given.seed)), given.console)
    table = Table("outcome", "checkpoints", "tokens", title="Random configs, float32, CPU")
    for outcome in Outcome:
        found = [each for each in results if each.outcome is outcome]
        table.add_row(outcome, str(len(found)), str(sum(each.num_tokens for each in found)))
    given.console.print(table)
    wrong = [f"{each.name}: {each.outcome}: {'; '.join(each.notes)}" for each in results if each.is_wrong]
    given.end({}, {"fuzzed": [vars(each) for each in results]}, bars_of_fuzzed(results), wrong)


@app.command()
@program
def reduced(given: Program, dtype: Annotated[str, typer.Argument(help="bfloat16, float16 or int8.")]) -> None:
    """Count differences between pairs and target-only in reduced precision."""
    if dtype not in DTYPES:
        raise typer.BadParameter(f"Unknown dtype '{dtype}': choose one of {', '.join(DTYPES)}.")
    # Without true shapes: a billion weights in reduced precision take a CPU too long.
    chosen = rows(quick=given.quick, seed=given.seed)
    chosen = [row for row in chosen if "true shapes" not in row.name]
    results = decoded(partial(run_reduced, dtype=dtype), chosen, given.console)
    table = Table(*REDUCED_COLUMNS, title=f"{dtype}, CPU: pairs against target-only")
    total = [0] * 4
    for one in results:
        counts = one.num_recordings, one.num_tokens, len(one.margins), one.num_from_float32
        total = [a + b for a, b in zip(total, counts, strict=True)]
        largest = f"{max(one.margins):.3f}" if one.margins else ""
        table.add_row(one.name, *map(str, counts[:3]), largest, str(counts[3]))
    table.add_row("all", *map(str, total[:3]), "", str(total[3]))
    given.console.print(table)
    given.end({}, {"dtype": dtype, "rows": [vars(each) for each in results]})


def bars_of(results: Sequence[Result], *, is_whole: bool) -> list[Bar]:
    split = sum(len(result.split_differences) for result in results)
    oracle = sum(len(result.oracle_differences) for result in results)
    bars = [
        none("texts of a pair that differ from the target's", split),
        none("our texts that differ from transformers'", oracle),
    ]
    if is_whole:
        num = sum(result.attempts for result in results)
        bars.append(Bar("decoded windows", num, MIN_DECODED, str(num), at_least=True))
    return bars


if __name__ == "__main__":
    app()
