"""``specwhisper tune``: its options."""

from __future__ import annotations

import asyncio
import json as json_module
import math
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console

from specwhisper.settings.command_line import takes
from specwhisper.settings.setting import part
from specwhisper.validated import number, option, validate
from specwhisper_client.cli.local_draft import Pair
from specwhisper_client.cli.tuning.measure import tune as run


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """All options of the command."""

    pair: Pair = part(Pair)
    audio: tuple[Path, ...] = option(
        (), "Recordings of English speech. Default: the bundled ones.", "FILE", repeats=True
    )
    seconds: float = number(40.0, 0, math.inf, "Length of the measurement, at least two rounds.", "SECONDS")
    json: Path | None = option(None, "File for the figures, as JSON.", "FILE")

    def __post_init__(self) -> None:
        validate(self)


@takes(TuneOptions)
def tune(context: typer.Context, wanted: TuneOptions) -> None:
    """Measure link and models, and recommend a mode.

    Encryption and token before the command are those of the target server.
    """
    pair = replace(wanted.pair, credentials=context.obj)
    figures = asyncio.run(run(pair, wanted.audio, wanted.seconds, Console()))
    if wanted.json is not None:
        wanted.json.write_text(json_module.dumps(figures, indent=1) + "\n")
