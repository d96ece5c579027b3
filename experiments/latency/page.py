"""``page``: the figures of docs/latency.md, and the tables on latency of docs/measurements.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from experiments.common.bench.report import ROOT
from experiments.latency.cells import CHOSEN
from specwhisper.types import Mode

FOLDER = ROOT / "docs" / "figures"
PREFIX = "latency-"  # file names: latency-grid.json, latency-drift.json ...
Facts = Mapping[str, Any]
ARMS = {
    "`sync`": (Mode.SYNC, False),
    "`pipelined`": (Mode.PIPELINED, False),
    "`full`": (Mode.FULL, False),
    "one process, one core": (Mode.ONE_PROCESS, False),
    "`full`, given hint": (Mode.FULL, True),
    "target-only, given hint": (Mode.TARGET_ONLY, True),
}


def page() -> None:
    """Draw the figures of docs/latency.md; ``python -m scripts.measurements`` then writes the tables."""
    from experiments.latency.figures import draw  # matplotlib takes a second to load

    try:
        for path in draw(read(FOLDER), FOLDER):
            typer.echo(path)
    except KeyError as error:
        sys.exit(f"experiments.latency: the figures need {error.args[0]}, which {FOLDER} does not have.")


def read(folder: Path) -> Facts:
    return {
        path.stem.removeprefix(PREFIX): json.loads(path.read_text())
        for path in folder.glob(f"{PREFIX}*.json")
    }


def rows_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _interval(value: Sequence[float] | None) -> str:
    return "" if value is None else f"{value[0]:.2f} [{value[1]:.2f}, {value[2]:.2f}]"


def cells(grid: Facts, **wanted: Any) -> list[Facts]:
    """Return the cells of a grid that have these values, by round trip."""
    found = [cell for cell in grid["cells"] if all(cell[name] == value for name, value in wanted.items())]
    return sorted(found, key=lambda cell: cell["rtt_ms"])


def speech(facts: Facts) -> str:
    head = ["speech", "tokens", "accepted, given the target's text", "mean run", "right after an error"]
    return rows_of(
        head,
        [
            [
                condition,
                f"{counts['num_tokens']}",
                f"{counts['acceptance']:.1%}",
                f"{counts['mean_run']:.0f}",
                f"{counts['realigned']:.0%}",
            ]
            for condition, counts in facts["grid"]["speech"].items()
        ],
    )


def decoding(facts: Facts) -> str:
    grid = facts["grid"]
    round_trips = sorted({cell["rtt_ms"] for cell in grid["cells"] if cell["condition"] == "clean"})
    rows = []
    for name, (mode, has_hint) in ARMS.items():
        wanted = {"condition": "clean", "mode": mode, "gamma": CHOSEN, "has_hint": has_hint}
        found = [next(iter(cells(grid, rtt_ms=ms, **wanted)), None) for ms in round_trips]
        rows.append(
            [name, *(_interval(cell["decoding_over_target_only"] if cell else None) for cell in found)]
        )
    return rows_of(["round trip, ms", *(f"{ms:g}" for ms in round_trips)], rows)


TABLES: dict[str, Callable[[Facts], str]] = {
    "speech": speech,
    "decoding, clean": decoding,
}
