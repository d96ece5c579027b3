"""Tables and figure of the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
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
        ratio = f"{median(values) / median(target_only):.2f}" if target_only else ""
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


def plot(rounds: Rounds, ladders: Sequence[Ladder], title: str, path: Path) -> None:
    """Draw lag and throughput over the number of sessions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    climbed = [ladder for ladder in ladders if ladder.outcomes]
    drawn: list[Callable[[Any], set[int]]] = [partial(_draw_lags, climbed)] if climbed else []
    drawn += [partial(_draw_speeds, rounds)] if rounds else []
    figure, all_axes = pyplot.subplots(
        1, len(drawn), figsize=(6 * len(drawn), 4.5), layout="constrained", squeeze=False
    )
    for axes, draw in zip(all_axes[0], drawn, strict=True):
        tried = sorted(draw(axes))
        axes.set_xscale("log", base=2)
        axes.set_xticks(tried, [str(number) for number in tried])
        axes.set_xlabel("sessions")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw_lags(ladders: Sequence[Ladder], axes: Any) -> set[int]:
    """Draw the lag of streams; return the measured numbers of sessions."""
    for ladder in ladders:
        due = [outcome for outcome in ladder.outcomes if outcome.lags_s]
        numbers = [outcome.load.num_sessions for outcome in due]
        p95 = [outcome.lag_s(HELD_QUANTILE) for outcome in due]
        axes.plot(numbers, p95, "o-", color=_colour(ladder.arm), label=ladder.arm)
        axes.axhline(ladder.max_lag_s, color="grey", linestyle="--", linewidth=1)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_ylabel("streams: p95 lag after the end of a window's audio, s")
    return {outcome.load.num_sessions for ladder in ladders for outcome in ladder.outcomes}


def _draw_speeds(rounds: Rounds, axes: Any) -> set[int]:
    """Draw the throughput of files; return the measured numbers of sessions."""
    for arm in dict.fromkeys(arm for arm, _ in rounds):
        numbers = [number for each, number in rounds if each is arm]
        spreads = [spread([outcome.tokens_per_s for outcome in rounds[arm, number]]) for number in numbers]
        middle = [each.median for each in spreads]
        around = [
            [each.median - each.lower for each in spreads],
            [each.upper - each.median for each in spreads],
        ]
        axes.errorbar(numbers, middle, around, fmt="o-", color=_colour(arm), capsize=3, label=arm)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("files: committed tokens per second")
    return {number for _, number in rounds}


def _colour(arm: Arm) -> str:
    return f"C{list(Arm).index(arm)}"
