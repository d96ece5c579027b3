"""Command-line arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from specwhisper.types import Mode

MODES = [mode for mode in Mode if mode is not Mode.ONE_PROCESS]  # one process needs no server
TOKEN_VARIABLE = "SPECWHISPER_TOKEN"
Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT,...",
        help="Draft servers, or locator:///HOST:PORT, which lists them; sessions are spread over all.",
    ),
]


def parse_mode(name: str) -> Mode:
    """Read one of the modes that a server has."""
    for mode in MODES:
        if mode == name:
            return mode
    raise typer.BadParameter(f"'{name}' is none of {', '.join(MODES)}.")
