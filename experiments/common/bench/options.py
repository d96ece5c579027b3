"""Options that every experiment has, under the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specwhisper.errors import InvalidRequest

Quick = Annotated[bool, typer.Option("--quick", help="A short run: at most two minutes on two cores.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is random: order, resampling.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", dir_okay=False, help="Write raw figures, machine and versions here.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Hold the results against the bars; exit with 1 if one is short.")
]
Audio = Annotated[
    list[Path] | None,
    typer.Option(
        "--audio", exists=True, dir_okay=False, help="A recording; repeat for more. [default: bundled]"
    ),
]
Target = Annotated[str, typer.Option(help="Target model: bundled name, Whisper size, hub id or folder.")]
Draft = Annotated[str, typer.Option(help="Draft model, named likewise.")]
Gamma = Annotated[
    int | None,
    typer.Option(min=1, max=64, help="Draft tokens per block. [default: as each session chooses]"),
]


def parse_levels(words: str) -> tuple[int, ...]:
    """Read numbers of sessions, upwards."""
    try:
        levels = sorted({int(word) for word in words.split(",")})
    except ValueError:
        raise InvalidRequest(f"--sessions is '{words}': write numbers with commas between.") from None
    if levels[0] < 1:
        raise InvalidRequest(f"--sessions has {levels[0]}: there must be at least 1.")
    return tuple(levels)
