"""Command-line options of both replay servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.common.models.published import PUBLISHED
from experiments.common.replay.shapes import FREE
from specwhisper.types import DTYPES

Shape = Annotated[
    str, typer.Option(help=f"Shape whose cost is replayed: {', '.join(PUBLISHED)}, or {FREE} for none.")
]
TraceFile = Annotated[
    Path,
    typer.Option("--trace", exists=True, dir_okay=False, help="Recorded trace of the models' text."),
]
MaxSessions = Annotated[int, typer.Option(min=1, help="Concurrent sessions; each takes a slot of memory.")]
DecodingOnly = Annotated[
    bool, typer.Option("--decoding-only", help="Encode only the first window of each slot.")
]
Dtype = Annotated[str, typer.Option(help=f"Data type of the random weights: {', '.join(DTYPES)}.")]
