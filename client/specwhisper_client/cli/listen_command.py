"""``specwhisper listen``: the command."""

from __future__ import annotations

import asyncio

import typer
from rich.console import Console

from specwhisper.errors import MissingExtra
from specwhisper_client.cli import listening
from specwhisper_client.cli.grouped_options import takes
from specwhisper_client.cli.jobs import report
from specwhisper_client.cli.listen_options import ListenOptions


@takes(ListenOptions)
def listen(context: typer.Context, wanted: ListenOptions) -> None:
    """Transcribe the microphone, live.

    On a terminal final words are bold, verified ones plain, drafted ones dim. Elsewhere standard output gets
    each utterance once it is complete. Ctrl-C ends the audio; the text until then becomes final.
    """
    errors = Console(stderr=True)
    try:
        if not asyncio.run(listening.listen(wanted, Console(), errors, context.obj)):
            raise typer.Exit(1)
    except MissingExtra as error:
        raise typer.Exit(report(error, errors)) from None
