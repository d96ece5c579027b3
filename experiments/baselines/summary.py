"""From measurements to a table, ratios and bars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from experiments.baselines.measurement import TRANSFORMERS, Arm, Measurement, Taken
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import ratio_of_medians, spread
from specwhisper.speculation.comparison import Ratio
from specwhisper.types import Mode

PROMISED = {Mode.ONE_PROCESS: 1.0, Mode.FULL: 0.4}  # most time per token over transformers'
COLUMNS = (
    "without encoder",
    "encoder, ms/window",
    "tokens/pass",
    "accepted",
    "text",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm over all rounds; times in milliseconds per token of the transcript.

    Attributes
    ----------
    total_ms : per round, all recordings: wall time.
    decode_ms : the same without the target's encoder.
    encode_ms : the target's encoder, per window.
    """

    arm: Arm
    total_ms: tuple[float, ...]
    decode_ms: tuple[float, ...]
    encode_ms: float
    tokens_per_forward: float | None
    acceptance_rate: float | None


def summarise(taken: Iterable[Taken]) -> dict[Arm, Summary]:
    """Reduce every arm to its rounds.

    All arms divide by the same number: the tokens that target-only committed, end-of-text included. What an
    arm computes beyond them is its own loss.
    """
    taken = list(taken)
    counts: dict[tuple[bool, str], tuple[int, int]] = {}
    for one in taken:
        statistics = one.measurement.statistics
        if one.arm.system == Mode.TARGET_ONLY and statistics is not None:
            counts[one.arm.timestamps, one.sample] = statistics.num_committed, statistics.num_windows
    by_arm: dict[Arm, dict[int, list[Taken]]] = defaultdict(lambda: defaultdict(list))
    for one in taken:
        by_arm[one.arm][one.round].append(one)
    return {arm: _summary(arm, list(rounds.values()), counts) for arm, rounds in by_arm.items()}


def _summary(
    arm: Arm, rounds: Sequence[Sequence[Taken]], counts: dict[tuple[bool, str], tuple[int, int]]
) -> Summary:
    total_ms, decode_ms, encode_s, windows = [], [], 0.0, 0
    for taken in rounds:
        tokens = sum(counts[arm.timestamps, one.sample][0] for one in taken)
        wall_s = sum(one.measurement.wall_s for one in taken)
        round_encode_s = sum(one.measurement.encode_s for one in taken)
        total_ms.append(1e3 * wall_s / tokens)
        decode_ms.append(1e3 * (wall_s - round_encode_s) / tokens)
        encode_s += round_encode_s
        windows += sum(counts[arm.timestamps, one.sample][1] for one in taken)
    measurements = [one.measurement for taken in rounds for one in taken]
    return Summary(
        arm, tuple(total_ms), tuple(decode_ms), 1e3 * encode_s / windows, *_speculation(measurements)
    )


def _speculation(measurements: Sequence[Measurement]) -> tuple[float | None, float | None]:
    """Return tokens per pass and acceptance over all sessions: ratios of sums."""
    statistics = [m.statistics for m in measurements if m.statistics is not None]
    passes, verified = (
        sum(getattr(s, name) for s in statistics) for name in ("num_forwards", "num_verified")
    )
    committed, accepted = (
        sum(getattr(s, name) for s in statistics) for name in ("num_committed", "num_accepted")
    )
    return committed / passes if passes else None, accepted / verified if verified else None


def ratios(summaries: dict[Arm, Summary], arm: Arm, reference: str, *, seed: int) -> tuple[Ratio, Ratio]:
    """Compare an arm's time per token with that of ``reference``: total, and without the encoder."""
    ours, theirs = summaries[arm], summaries[Arm(reference, arm.timestamps)]
    return (
        ratio_of_medians(ours.total_ms, theirs.total_ms, seed=seed),
        ratio_of_medians(ours.decode_ms, theirs.decode_ms, seed=seed),
    )


def bars(summaries: dict[Arm, Summary], *, seed: int) -> list[Bar]:
    """Check that the promised modes beat transformers, by the upper end of the interval."""
    found = []
    for timestamps in (True, False):
        for mode, most in PROMISED.items():
            arm = Arm(mode, timestamps)
            total, _ = ratios(summaries, arm, TRANSFORMERS, seed=seed)
            found.append(Bar(f"{arm}, time per token over transformers'", total.high, most, str(total)))
    return found


def replay_bars(summaries: dict[Arm, Summary], *, seed: int) -> list[Bar]:
    """Check what two processes lose against one where nothing is hidden: both wait for each other."""
    total, _ = ratios(summaries, Arm(Mode.SYNC, True), Mode.ONE_PROCESS, seed=seed)
    return [Bar("sync over loopback, time per token over one-process", total.high, 1.05, str(total))]


def print_table(
    summaries: dict[Arm, Summary], *, timestamps: bool, differing: Iterable[Arm], seed: int, console: Console
) -> None:
    """Print the arms with or without timestamps, slowest first."""
    title = f"Wall time in ms per token (quartiles), {'with' if timestamps else 'without'} timestamps"
    table = Table(title=title, title_justify="left")
    chosen = [summary for arm, summary in summaries.items() if arm.timestamps == timestamps]
    systems = {summary.arm.system for summary in chosen}
    references = [name for name in (TRANSFORMERS, Mode.TARGET_ONLY, Mode.ONE_PROCESS) if name in systems]
    table.add_column("arm", no_wrap=True)
    for heading in ("total", *(f"/ {name}" for name in references), *COLUMNS):
        table.add_column(heading, justify="right", no_wrap=True)
    differing = set(differing)
    for summary in sorted(chosen, key=lambda summary: -spread(summary.total_ms).median):
        columns = [f"{spread(summary.total_ms):.2f}"]
        columns += [str(ratios(summaries, summary.arm, reference, seed=seed)[0]) for reference in references]
        columns += [f"{spread(summary.decode_ms):.2f}", f"{summary.encode_ms:.0f}"]
        columns += [
            "" if summary.tokens_per_forward is None else f"{summary.tokens_per_forward:.2f}",
            "" if summary.acceptance_rate is None else f"{summary.acceptance_rate:.0%}",
            "differs" if summary.arm in differing else "same",
        ]
        table.add_row(str(summary.arm.system), *columns)
    console.print(table)
