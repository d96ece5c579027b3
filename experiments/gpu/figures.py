"""All figures of a run, their bars and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar

JUDGED = "large-v3"
PASS_MS = {(1, 8): 1.0, (32, 5): 3.5}
REQUESTS_PER_S, REQUEST_S = 80.0, 0.1  # of 32 clients; of one client, 95 of 100


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, whether it holds, and the measured value."""

    name: str
    holds: bool
    found: str


@dataclass
class Figures:
    """Rows of each kind; ``failures`` has the traceback of each failed part, by name."""

    checks: list[Check] = field(default_factory=list)
    passes: list[Any] = field(default_factory=list)
    encodings: list[Any] = field(default_factory=list)
    beside: list[Any] = field(default_factory=list)
    agreements: list[Any] = field(default_factory=list)
    carried: list[Any] = field(default_factory=list)
    peers: list[Any] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """Describe what failed or differs."""
        lines = [f"{part} failed: {trace.splitlines()[-1]}" for part, trace in self.failures.items()]
        lines += [f"{each.name}: {each.found}" for each in self.checks if not each.holds]
        return lines + [
            f"{of.mode}, {of.num_sessions} sessions: {of.num_different} texts differ {' '.join(of.failures)}"
            for of in self.carried
            if of.num_different or of.failures
        ]


def find_bars(figures: Figures) -> list[Bar]:
    """Hold what there is of the judged shape against the engine's goals."""
    bars = []
    for one in figures.passes:
        bound = PASS_MS.get((one.rows, one.width))
        is_half = one.dtype in ("float16", "bfloat16")
        if bound is not None and one.shape == JUDGED and is_half:
            name = f"{JUDGED}: forward pass of {one.rows} x {one.width} tokens, {one.dtype}, ms"
            bars.append(Bar(name, one.ms, bound, f"{one.ms:.2f}"))
    carried = [one for one in figures.carried if one.shape == JUDGED and one.requests_per_s]
    if of_32 := [one for one in carried if one.num_sessions == 32]:
        best = max(of_32, key=lambda one: one.requests_per_s)
        name, shown = (
            f"{JUDGED}: requests of 32 clients a second",
            f"{best.requests_per_s:.1f} in {best.mode}",
        )
        bars.append(Bar(name, best.requests_per_s, REQUESTS_PER_S, shown, at_least=True))
    if alone := [one for one in carried if one.num_sessions == 1]:
        quickest = min(alone, key=lambda one: one.p95_s)
        name = f"{JUDGED}: 95th percentile of one client's requests, s"
        bars.append(Bar(name, quickest.p95_s, REQUEST_S, f"{quickest.p95_s:.3f} in {quickest.mode}"))
    if exact := [one for one in figures.checks if "float32" in one.name]:
        num_broken = sum(not one.holds for one in exact)
        shown = f"{num_broken} of {len(exact)}"
        bars.append(Bar("equalities in float32 that do not hold", num_broken, 1, shown))
    return bars


def print_figures(figures: Figures, console: Console) -> None:
    """Print a table of each kind with rows, with the fields as columns."""
    titles = {
        "checks": "equalities",
        "passes": "forward passes of sessions x tokens",
        "encodings": "encoding a window",
        "beside": "whole passes of 8 x 5 beside the encoder",
        "agreements": "choices equal to float32's, random weights",
        "carried": "sessions on one target, over gRPC, replay",
        "peers": "transformers",
    }
    for kind, title in titles.items():
        if rows := getattr(figures, kind):
            console.print(_table(title, rows))


def _table(title: str, rows: Sequence[Any]) -> Table:
    names = [each.name for each in fields(rows[0]) if each.name != "failures"]
    table = Table(*names, title=title)
    for row in rows:
        table.add_row(*(_shown(getattr(row, name)) for name in names))
    return table


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
