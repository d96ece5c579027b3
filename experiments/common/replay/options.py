"""Command-line options of both replay servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.common.models.published import PUBLISHED
from experiments.common.replay.shapes import FREE
from specwhisper.types import DTYPES

Shape = Annotated[str, typer.Option(help=f"What a pass costs: {', '.join(PUBLISHED)}, or {FREE}: nothing.")]
TraceFile = Annotated[
    Path,
    typer.Option("--trace", exists=True, dir_okay=False, help="What the models write: a recorded trace."),
]
MaxSessions = Annotated[int, typer.Option(min=1, help="Sessions at once; each takes a slot of memory.")]
DecodingOnly = Annotated[
    bool, typer.Option("--decoding-only", help="Encode only the first window of each slot.")
]
Dtype = Annotated[str, typer.Option(help=f"Of the random weights: {', '.join(DTYPES)}.")]
