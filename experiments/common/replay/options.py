"""Command-line options of servers with replay models."""

from __future__ import annotations

from typing import Annotated

import typer

from specwhisper.types import DTYPES

MaxSessions = Annotated[int, typer.Option(min=1, help="Concurrent sessions; each takes a slot of memory.")]
Dtype = Annotated[str, typer.Option(help=f"Data type of the random weights: {', '.join(DTYPES)}.")]
