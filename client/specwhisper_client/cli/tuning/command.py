"""``specwhisper tune``: its options."""

from __future__ import annotations

import asyncio
import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specwhisper.errors import SpecWhisperError
from specwhisper_client.cli.jobs import report
from specwhisper_client.cli.local_draft import Pair
from specwhisper_client.cli.tuning.measure import tune as run


def tune(
    context: typer.Context,
    target: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the target server.")],
    draft_model: Annotated[
        str, typer.Option(metavar="MODEL", help="Draft model: a name, a hub id, a folder or a file.")
    ] = "demo-draft-tiny",
    device: Annotated[str, typer.Option(metavar="DEVICE", help="Device of the draft model.")] = "cpu",
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Precision of the draft model.")] = "float32",
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="CPU threads of the draft model. Default: as many as cores."),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Recordings of English speech. Default: the bundled ones."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Length of the measurement, at least two rounds.")
    ] = 40.0,
    json: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="FILE", help="File for the figures, as JSON.")
    ] = None,
) -> None:
    """Measure link and models, and recommend a mode.

    Encryption and token before the command are those of the target server.
    """
    errors = Console(stderr=True)
    try:
        pair = Pair(target, draft_model, device, dtype, threads, context.obj)
        figures = asyncio.run(run(pair, audio or [], seconds, Console()))
        if json is not None:
            json.write_text(json_module.dumps(figures, indent=1) + "\n")
    except SpecWhisperError as error:
        raise typer.Exit(report(error, errors)) from None
