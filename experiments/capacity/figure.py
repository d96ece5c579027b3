"""Draw lag and throughput over the number of sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.capacity.gains import Rounds
from experiments.capacity.ladder import HELD_QUANTILE, Ladder
from experiments.capacity.load import Arm
from experiments.common.bench.figure_style import COLOURS, DPI, STYLE, UNDATED
from experiments.common.bench.stats import spread
from specwhisper.types import Mode

PANEL = (4.6, 3.2)  # inches
MARKERS = {
    Arm.TARGET_ONLY: "o",
    Arm.SYNC: "s",
    Arm.PIPELINED: "^",
    Arm.FULL: "o",
    Arm.PER_CLIENT: "D",
}


def plot(rounds: Rounds, ladders: Sequence[Ladder], title: str, path: Path) -> None:
    """Write a figure with a panel for streams and one for files, as far as they were measured."""
    climbed = [ladder for ladder in ladders if ladder.outcomes]
    drawn: list[Callable[[Axes], set[int]]] = [partial(_draw_lags, climbed)] if climbed else []
    drawn += [partial(_draw_speeds, rounds)] if rounds else []
    width, height = PANEL
    with plt.rc_context(STYLE):
        figure, all_axes = plt.subplots(
            1, len(drawn), figsize=(width * len(drawn), height), layout="constrained", squeeze=False
        )
        for axes, draw in zip(all_axes[0], drawn, strict=True):
            tried = sorted(draw(axes))
            axes.set_xscale("log", base=2)
            axes.set_xticks(tried, [str(number) for number in tried])
            axes.set_xlabel("sessions")
            axes.grid(alpha=0.3)
            axes.legend()
        figure.suptitle(title)
        figure.savefig(path, dpi=DPI, metadata=UNDATED.get(path.suffix.removeprefix(".")))
        plt.close(figure)


def _draw_lags(ladders: Sequence[Ladder], axes: Axes) -> set[int]:
    """Draw the lag of streams; return the measured numbers of sessions."""
    for ladder in ladders:
        due = [outcome for outcome in ladder.outcomes if outcome.lags_s]
        numbers = [outcome.load.num_sessions for outcome in due]
        p95 = [outcome.lag_s(HELD_QUANTILE) for outcome in due]
        axes.plot(numbers, p95, color=_colour(ladder.arm), marker=MARKERS[ladder.arm], label=ladder.arm)
        axes.axhline(ladder.max_lag_s, color="grey", linestyle="--", linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_ylabel("lag after the end of a window's audio,\n95th percentile, s")
    axes.set_title("live clients")
    return {outcome.load.num_sessions for ladder in ladders for outcome in ladder.outcomes}


def _draw_speeds(rounds: Rounds, axes: Axes) -> set[int]:
    """Draw the throughput of files; return the measured numbers of sessions."""
    for arm in dict.fromkeys(arm for arm, _ in rounds):
        numbers = [number for each, number in rounds if each is arm]
        spreads = [spread([outcome.tokens_per_s for outcome in rounds[arm, number]]) for number in numbers]
        middle = [each.median for each in spreads]
        around = [
            [each.median - each.lower for each in spreads],
            [each.upper - each.median for each in spreads],
        ]
        has_spread = all(len(rounds[arm, number]) > 1 for number in numbers)
        axes.errorbar(
            numbers,
            middle,
            around if has_spread else None,
            color=_colour(arm),
            linestyle="--" if arm is Arm.PER_CLIENT else "-",
            marker=MARKERS[arm],
            elinewidth=0.8,
            capsize=2,
            label=f"{arm}, n = {min(len(rounds[arm, number]) for number in numbers)}",
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("committed tokens per second,\nmedian and quartiles")
    axes.set_title("clients with whole recordings")
    return {number for _, number in rounds}


def _colour(arm: Arm) -> str:
    return COLOURS[Mode.ONE_PROCESS if arm is Arm.PER_CLIENT else arm.mode]
