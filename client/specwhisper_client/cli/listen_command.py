"""``specwhisper listen``: the command."""

from __future__ import annotations

import asyncio

import typer
from rich.console import Console

from specwhisper_client.cli import listening
from specwhisper_client.cli.grouped_options import takes
from specwhisper_client.cli.listen_options import ListenOptions


@takes(ListenOptions)
def listen(context: typer.Context, wanted: ListenOptions) -> None:
    """Transcribe the microphone, live.

    On a terminal final words are bold, verified ones plain, drafted ones dim. Elsewhere standard output gets
    each utterance once it is complete. Ctrl-C ends the audio; the text until then becomes final.
    """
    if not asyncio.run(listening.listen(wanted, Console(), Console(stderr=True), context.obj)):
        raise typer.Exit(1)
