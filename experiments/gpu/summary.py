"""Tables and bars of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.gpu.agreement import Agreement
from experiments.gpu.beside import Beside
from experiments.gpu.encoding import Encoding
from experiments.gpu.identity import Check
from experiments.gpu.passes import Point
from experiments.gpu.peers import Peer
from experiments.gpu.profiled import Profile
from experiments.gpu.service import Throughput
from experiments.gpu.tuning import Tuned

JUDGED = "large-v3"
PASS_MS = {(1, 8): 1.0, (32, 5): 3.5}
REQUESTS_PER_S, REQUEST_S = 80.0, 0.1  # of 32 clients; of one client, 95 of 100


@dataclass
class Figures:
    """All figures; ``failures`` has the traceback of each failed part, by name."""

    checks: list[Check] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    encodings: list[Encoding] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    beside: list[Beside] = field(default_factory=list)
    tuned: list[Tuned] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    carried: list[Throughput] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def find_bars(figures: Figures) -> list[Bar]:
    """Return the bars of the engine."""
    bars = []
    for point in figures.points:
        bound = PASS_MS.get((point.rows, point.width))
        if _is_judged(point) and bound is not None:
            shown = f"{point.busy_s * 1e3:.2f} ms, floor {point.floor_s * 1e3:.2f} ms"
            name = f"{JUDGED}: forward pass of {point.rows} x {point.width} tokens, {point.dtype}, ms"
            bars.append(Bar(name, point.busy_s * 1e3, bound, shown))
    carried = [one for one in figures.carried if one.shape == JUDGED and one.request_s]
    if of_32 := [one for one in carried if one.num_sessions == 32]:
        best = max(of_32, key=lambda one: one.requests_per_s)
        shown = f"{best.requests_per_s:.1f} a second in {best.mode}"
        name = f"{JUDGED}: seconds of 32 clients per request"
        bars.append(Bar(name, 1 / best.requests_per_s, 1 / REQUESTS_PER_S, shown))
    if alone := [one for one in carried if one.num_sessions == 1]:
        quickest = min(alone, key=lambda one: one.p95_s)
        shown = f"{quickest.p95_s:.3f} s in {quickest.mode}"
        bars.append(
            Bar(f"{JUDGED}: 95th percentile of one client's requests, s", quickest.p95_s, REQUEST_S, shown)
        )
    identity = [one for one in figures.checks if "float32" in one.name]
    if identity:
        num_broken = sum(not one.holds for one in identity)
        shown = f"{num_broken} of {len(identity)}"
        bars.append(Bar("equalities in float32 that do not hold", num_broken, 1, shown))
    return bars


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
        ("shape", "type", "batch", "ms per window", "transformers, ms"),
        [
            (one.shape, one.dtype, str(one.batch), f"{one.window_s * 1e3:.2f}", f"{one.eager_s * 1e3:.2f}")
            for one in figures.encodings
        ],
    )
    yield _table(
        "kernels of a forward pass",
        ("shape", "size", "launches", "idle, us", "kernel", "a pass", "us a pass"),
        [
            (
                *(
                    (one.shape, f"{one.rows} x {one.width}", f"{one.num_launches:.0f}", f"{one.idle_us:.0f}")
                    if i == 0
                    else ("", "", "", "")
                ),
                name,
                f"{times:.0f}",
                f"{us:.0f}",
            )
            for one in figures.profiles
            for i, (name, times, us) in enumerate(one.kernels)
        ],
    )
    yield _table(
        "whole passes of 8 x 5, ms",
        ("shape", "type", "encoder", "median", "95th percentile"),
        [
            (
                one.shape,
                one.dtype,
                "busy" if one.is_encoding else "idle",
                f"{one.median_ms:.2f}",
                f"{one.p95_ms:.2f}",
            )
            for one in figures.beside
        ],
    )
    yield _table(
        "passes with other constants, ms",
        ("shape", "constant", "value", "size", "ms"),
        [
            (
                one.shape,
                one.constant,
                f"{one.value}{' (ours)' if one.is_ours else ''}",
                f"{one.rows} x {one.width}",
                one.failure or f"{one.busy_ms:.3f}",
            )
            for one in figures.tuned
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
            "requests/s",
            "p95, s",
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
                f"{one.requests_per_s:.1f}",
                f"{one.p95_s:.3f}" if one.request_s else "",
                f"{one.tokens_per_s:.0f}",
                f"{one.tokens_per_forward_s:.0f}",
                f"{one.num_tokens / max(1, one.num_passes):.2f}",
                f"{one.num_rows / max(1, one.num_forwards):.1f}",
                f"{one.num_texts - one.num_different} of {one.num_texts} equal the target's",
            )
            for one in figures.carried
        ],
    )
    yield _table(
        "other programs",
        ("shape", "program", "type", "windows", "ms a token", "tokens/s"),
        [
            (
                one.shape,
                one.name,
                one.dtype,
                str(one.batch),
                one.failure or f"{one.token_ms:.2f}",
                "" if one.failure else f"{one.tokens_per_s:.0f}",
            )
            for one in figures.peers
        ],
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    return table
