"""The command line: ``specwhisper transcribe FILE...`` and ``specwhisper models``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from client.api import DEFAULT_SERVER
from client.jobs import Job, show_server, transcribe_files
from client.output import OutputFormat
from specwhisper import __version__
from specwhisper.types import DecodingOptions, Mode, Task

MODES = [mode for mode in Mode if mode is not Mode.ONE_PROCESS]  # one process needs no server

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)
Server = Annotated[str, typer.Option(help="HOST:PORT of the draft server.")]


def main() -> None:
    """Run the command line."""
    app()


def show_version(is_wanted: bool) -> None:
    """Print the version and leave."""
    if is_wanted:
        typer.echo(f"specwhisper {__version__}")
        raise typer.Exit


def parse_mode(name: str) -> Mode:
    """Read one of the modes that a server has."""
    for mode in MODES:
        if mode == name:
            return mode
    raise typer.BadParameter(f"'{name}' is none of {', '.join(MODES)}.")


@app.callback()
def specwhisper(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Transcribe speech with a small draft model near you and a large target model on a GPU."""


@app.command()
def transcribe(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Recordings of any audio format.")],
    server: Server = DEFAULT_SERVER,
    language: Annotated[str, typer.Option(help="Language code of the speech.")] = "en",
    task: Annotated[Task, typer.Option(help="Write what is said, or English.")] = Task.TRANSCRIBE,
    timestamps: Annotated[bool, typer.Option(help="Tell when each segment is said.")] = True,
    mode: Annotated[
        Mode | None,
        typer.Option(
            parser=parse_mode,
            metavar="|".join(MODES),
            help="How draft and target work together; by default as the server is set.",
        ),
    ] = None,
    gamma: Annotated[
        int | None, typer.Option(min=1, help="Draft tokens per block; by default as the server is set.")
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option(help="Text alone, or all there is.")
    ] = OutputFormat.TXT,
    output_dir: Annotated[
        Path | None, typer.Option(file_okay=False, help="Write a file per recording into this folder.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the text and nothing else.")] = False,
) -> None:
    """Transcribe recordings.

    On a terminal the text appears as it is written, with what the draft expects dim behind it. Elsewhere
    standard output gets the final text only. Statistics and errors go to standard error.
    """
    options = DecodingOptions(language=language, task=task, timestamps=timestamps)
    job = Job(server, options, mode, gamma, output_format, output_dir, quiet)
    if not asyncio.run(transcribe_files(files, job, Console(), Console(stderr=True))):
        raise typer.Exit(1)


@app.command()
def models(server: Server = DEFAULT_SERVER) -> None:
    """Tell which models a server works with."""
    if not asyncio.run(show_server(server, Console(), Console(stderr=True))):
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
