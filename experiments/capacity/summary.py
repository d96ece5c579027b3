"""Tables of the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.capacity.gains import BUSY_GENERATOR, Rounds
from experiments.capacity.ladder import HELD_QUANTILE, Ladder
from experiments.capacity.load import Arm, Outcome
from experiments.common.bench.stats import spread

SHARED = (
    "tokens/pass",
    "tokens/forward",
    "sessions/forward",
    "queue, ms",
    "target",
    "encoder",
    "generator",
    "MB",
)


def print_files(rounds: Rounds, console: Console) -> None:
    """Print the throughput of clients with whole recordings, which saturate the target."""
    table = _table("Files: throughput", "tokens/s (quartiles)", "/ target-only")
    for (arm, number), outcomes in rounds.items():
        values = [outcome.tokens_per_s for outcome in outcomes]
        target_only = [outcome.tokens_per_s for outcome in rounds.get((Arm.TARGET_ONLY, number), ())]
        ratio = f"{median(values) / median(target_only):.2f}" if target_only and median(target_only) else ""
        middle = sorted(outcomes, key=lambda outcome: outcome.tokens_per_s)[len(outcomes) // 2]
        table.add_row(arm, str(number), f"{spread(values):.1f}", ratio, *_shared(middle))
    console.print(table)


def print_streams(ladders: Sequence[Ladder], console: Console) -> None:
    """Print the lag of live clients' text, and how many sessions each arm carries."""
    table = _table(
        "Streams: lag after the end of a window's audio, s",
        "windows",
        "p50",
        "p95",
        "max",
        "held",
        "tokens/s",
    )
    for ladder in ladders:
        for outcome in ladder.outcomes:
            quantiles = (f"{outcome.lag_s(q):.2f}" for q in (0.5, HELD_QUANTILE, 1.0))
            held = "yes" if ladder.holds(outcome) else "no" if outcome.lags_s else "none due"
            number = str(outcome.load.num_sessions)
            cells = (str(len(outcome.lags_s)), *quantiles, held, f"{outcome.tokens_per_s:.1f}")
            table.add_row(ladder.arm, number, *cells, *_shared(outcome))
    console.print(table)
    for ladder in ladders:
        line = f"{ladder.arm}: {ladder.most_held} sessions held at p95 lag <= {ladder.max_lag_s:g} s"
        console.print(
            line + (f"; {ladder.stopped}" if ladder.stopped else ""), highlight=False, soft_wrap=True
        )


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("arm", no_wrap=True)
    for heading in ("sessions", *headings, *SHARED):
        table.add_column(heading, justify="right")
    return table


def _shared(outcome: Outcome) -> tuple[str, ...]:
    usage = outcome.usage
    mark = "!" if outcome.generator_share > BUSY_GENERATOR else ""
    return (
        f"{outcome.tokens_per_pass:.2f}",
        f"{outcome.tokens_per_forward:.2f}",
        f"{usage.batch_size:.2f}",
        f"{1e3 * outcome.queue_s / outcome.num_passes:.1f}" if outcome.num_passes else "",
        f"{outcome.target_share:.0%}",
        f"{usage.encode_share:.0%}",
        f"{outcome.generator_share:.0%}{mark}" if outcome.generator_s else "",
        f"{outcome.resident_mb:.0f}",
    )


def facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON values."""
    derived = ("tokens_per_s", "tokens_per_pass", "tokens_per_forward", "generator_share", "target_share")
    return asdict(outcome) | {name: getattr(outcome, name) for name in derived}
