"""Command-line options that experiments share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specwhisper.errors import InvalidRequest

Quick = Annotated[bool, typer.Option("--quick", help="A short run of at most two minutes on two cores.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness: order, resampling.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", dir_okay=False, help="File for raw figures, machine and versions.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Compare the results with the bars; exit with 1 if one fails.")
]
Audio = Annotated[
    list[Path] | None,
    typer.Option(
        "--audio", exists=True, dir_okay=False, help="A recording; repeat for more. [default: bundled]"
    ),
]
Target = Annotated[str, typer.Option(help="Target model: bundled name, Whisper size, hub id or folder.")]
Draft = Annotated[str, typer.Option(help="Draft model: bundled name, Whisper size, hub id or folder.")]
Gamma = Annotated[
    int | None,
    typer.Option(min=1, max=64, help="Draft tokens per block. [default: each session chooses]"),
]


def parse_levels(words: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of sessions; return them in ascending order."""
    try:
        levels = sorted({int(word) for word in words.split(",")})
    except ValueError:
        raise InvalidRequest(f"--sessions is '{words}': pass numbers separated by commas.") from None
    if levels[0] < 1:
        raise InvalidRequest(f"--sessions has {levels[0]}: pass at least 1.")
    return tuple(levels)
