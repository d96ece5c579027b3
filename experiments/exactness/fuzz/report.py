"""Report how many of the drawn checkpoints are equal, refused or wrong."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.exactness.fuzz.running import Fuzzed, Outcome

WRONG = (Outcome.DIFFERENT, Outcome.RAW_ERROR)
MEANINGS = {
    Outcome.SAME: "every text equals transformers'",
    Outcome.REFUSED: "ours refuses the checkpoint or the options, as it must, in a sentence of its own",
    Outcome.OURS_ONLY: "transformers raises an error or never ends; our texts are equal to each other",
    Outcome.DIFFERENT: "a text differs, or a value is not refused that must be",
    Outcome.RAW_ERROR: "ours raises an error that is not one of its own",
}


def is_wrong(result: Fuzzed) -> bool:
    """Return whether a checkpoint shows a defect of ours."""
    return result.outcome in WRONG


def table_of_fuzzed(results: Sequence[Fuzzed]) -> Table:
    """Return the outcomes as a table."""
    table = Table("outcome", "checkpoints", "tokens", "meaning", title="Random configs, float32, CPU")
    for outcome, meaning in MEANINGS.items():
        found = [result for result in results if result.outcome is outcome]
        tokens = sum(result.num_tokens for result in found)
        table.add_row(outcome, str(len(found)), str(tokens), meaning)
    return table


def bars_of_fuzzed(results: Sequence[Fuzzed]) -> list[Bar]:
    """Return the bars of the drawn checkpoints."""
    names = {
        Outcome.DIFFERENT: "checkpoints with random configs that differ",
        Outcome.RAW_ERROR: "raw errors of checkpoints with random configs",
    }
    bars = []
    for outcome, name in names.items():
        count = sum(result.outcome is outcome for result in results)
        bars.append(Bar(name, count, 1, f"{count} of {len(results)}"))
    return bars
