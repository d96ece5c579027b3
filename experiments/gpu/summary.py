"""Tables and bars of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.gpu.agreement import Agreement
from experiments.gpu.encoding import Encoding
from experiments.gpu.identity import Check
from experiments.gpu.kernels import Kernel
from experiments.gpu.passes import Point
from experiments.gpu.service import Throughput
from specwhisper.types import Mode

JUDGED = "large-v3"
VERIFY_MS, MULTIPLE, ENCODE_MS, CAPACITY = 1.0, 2.5, 12.0, 2.5


@dataclass
class Figures:
    """All figures; ``failures`` has the traceback of each failed part, by name."""

    checks: list[Check] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    encodings: list[Encoding] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    carried: list[Throughput] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def find_bars(figures: Figures) -> list[Bar]:
    """Return the bars of the engine."""
    bars = []
    judged = [point for point in figures.points if _is_judged(point)]
    for point in judged:
        if (point.rows, point.width) == (1, 8):
            shown = f"{point.busy_s * 1e3:.2f} ms, floor {point.floor_s * 1e3:.2f} ms"
            name = f"{JUDGED}: forward pass of 8 tokens of one session, {point.dtype}, ms"
            bars.append(Bar(name, point.busy_s * 1e3, VERIFY_MS, shown))
    if judged:
        worst = max(judged, key=lambda point: point.multiple)
        shown = f"{worst.multiple:.2f} at {worst.rows} x {worst.width}, the worst of {len(judged)}"
        bars.append(Bar(f"{JUDGED}: forward pass relative to its floor", worst.multiple, MULTIPLE, shown))
    if batches := [one for one in figures.encodings if one.shape == JUDGED and one.batch > 1]:
        best = min(batches, key=lambda one: one.window_s)
        shown = f"{best.window_s * 1e3:.2f} ms, batches of {best.batch}"
        bars.append(Bar(f"{JUDGED}: encoding a window, ms", best.window_s * 1e3, ENCODE_MS, shown))
    for num_sessions, gain in sorted(gains(figures.carried).items()):
        name = f"target-only over split (replay), tokens per second of {num_sessions} sessions"
        bars.append(Bar(name, 1 / gain, 1 / CAPACITY, f"{1 / gain:.3f} (a gain of {gain:.2f})"))
    return bars


def gains(carried: Iterable[Throughput]) -> dict[int, float]:
    """Return the gain of the best split mode over target-only, by number of sessions."""
    speeds: dict[int, dict[str, float]] = {}
    for one in carried:
        if one.shape == JUDGED and one.tokens_per_s:
            speeds.setdefault(one.num_sessions, {})[one.mode] = one.tokens_per_s
    return {
        num_sessions: max(speed for mode, speed in by_mode.items() if mode != Mode.TARGET_ONLY) / target_only
        for num_sessions, by_mode in speeds.items()
        if (target_only := by_mode.get(Mode.TARGET_ONLY)) and len(by_mode) > 1
    }


def _is_judged(point: Point) -> bool:
    is_half = point.dtype in ("float16", "bfloat16")
    return point.shape == JUDGED and is_half and point.cross_cache is None and not point.is_fallback


def print_figures(figures: Figures, console: Console) -> None:
    """Print a table of each kind with rows."""
    for table in _tables(figures):
        if table.rows:
            console.print(table)


def _tables(figures: Figures) -> Iterable[Table]:
    yield _table(
        "equalities",
        ("", "", "found"),
        [(one.name, "holds" if one.holds else "BROKEN", one.found) for one in figures.checks],
    )
    yield _table(
        "forward passes of sessions x tokens",
        ("shape", "type", "cache", "attention", "size", "ms", "floor, ms", "times", "waited, ms"),
        [
            (
                one.shape,
                one.dtype,
                one.cross_cache or "",
                "torch" if one.is_fallback else "",
                f"{one.rows} x {one.width}",
                f"{one.busy_s * 1e3:.3f}",
                f"{one.floor_s * 1e3:.3f}",
                f"{one.multiple:.2f}",
                f"{one.waited_s * 1e3:.3f}",
            )
            for one in figures.points
        ],
    )
    yield _table(
        "encoding a window",
        ("shape", "type", "batch", "ms per window"),
        [(one.shape, one.dtype, str(one.batch), f"{one.window_s * 1e3:.2f}") for one in figures.encodings],
    )
    yield _table(
        "attention of one layer, microseconds",
        ("shape", "to", "cache", "size", "kernels", "torch", "floor", "difference"),
        [
            (
                one.shape,
                one.attends_to,
                one.cache or "",
                f"{one.rows} x {one.width}",
                "none here" if one.kernel_s is None else f"{one.kernel_s * 1e6:.1f}",
                f"{one.torch_s * 1e6:.1f}",
                f"{one.floor_s * 1e6:.1f}",
                "" if one.error is None else f"{one.error:.1e}",
            )
            for one in figures.kernels
        ],
    )
    yield _table(
        "choices equal to float32's, random weights",
        ("shape", "type", "cache", "equal", "of", "error of logits", "median margin", "largest lost margin"),
        [
            (
                one.shape,
                one.dtype,
                one.cross_cache or "",
                f"{one.share:.2%}",
                str(one.num_choices),
                f"{one.error:.1e}",
                f"{one.median_margin:.3f}",
                f"{one.largest_lost_margin:.3f}",
            )
            for one in figures.agreements
        ],
    )
    yield _table(
        "sessions on one target, over gRPC, replay",
        (
            "shape",
            "mode",
            "sessions",
            "tokens/s",
            "tokens/s of passes",
            "tokens/pass",
            "sessions/pass",
            "texts",
        ),
        [
            (
                one.shape,
                one.mode,
                str(one.num_sessions),
                f"{one.tokens_per_s:.0f}",
                f"{one.tokens_per_forward_s:.0f}",
                f"{one.num_tokens / max(1, one.num_passes):.2f}",
                f"{one.num_rows / max(1, one.num_forwards):.1f}",
                f"{one.num_texts - one.num_different} of {one.num_texts} equal the target's",
            )
            for one in figures.carried
        ],
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    return table
