"""The end of each program: its figures in a file, its bars on the screen, its exit status."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from experiments.common.bench.report import Bar, print_bars, write_json

SHOWN_LINES = 10


def conclude(
    bars: Sequence[Bar],
    figures: Mapping[str, Any],
    models: Mapping[str, Any],
    console: Console,
    *,
    json: Path | None,
    check: bool,
    wrong: Sequence[str] = (),
) -> NoReturn:
    """Exit with 1 if a checked bar is short, or if anything is wrong."""
    if json is not None:
        write_json(json, models=models, figures={**figures, "bars": list(map(str, bars)), "wrong": wrong})
    all_hold = print_bars(bars, console) if check else True
    for line in wrong[:SHOWN_LINES]:
        console.print(f"WRONG: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not wrong else 1)
