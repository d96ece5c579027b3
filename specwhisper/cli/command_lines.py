"""Command lines of servers: read in a terminal, or from flags that stand in a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import typer

from specwhisper.errors import InvalidRequest, SpecWhisperError

Config = TypeVar("Config")

# Of click, or of the copy that newer typers bring: what anything wrong on a command line is.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def run_command(program: str, read: Callable[..., Config], serve: Callable[[Config], None]) -> None:
    """Read this process's command line, and serve what it asks for.

    Parameters
    ----------
    read : takes the flags, annotated as typer wants them, and gives a configuration.
    """

    @wraps(read)
    def command(**values: Any) -> None:
        try:
            serve(read(**values))
        except SpecWhisperError as error:
            sys.exit(f"{program}: {error}")

    typer.run(command)


def config_from(read: Callable[..., Config], flags: Mapping[str, object]) -> Config:
    """Read flags as a file has them, by the rules of the command line.

    ``{"max-sessions": 8, "insecure": True}`` is ``--max-sessions 8 --insecure``; what is null is left out.
    """
    app = typer.Typer(add_completion=False)
    app.command()(read)
    command = typer.main.get_command(app)
    can_be_denied = {name for option in command.params for name in option.secondary_opts}
    words = []
    for name, value in flags.items():
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words += [f"--no-{name}"] if f"--no-{name}" in can_be_denied else []
        elif value is not None:
            words += [f"--{name}", str(value)]
    try:
        config: Config = command.main(words, prog_name="", standalone_mode=False)
    except UsageError as error:
        raise InvalidRequest(error.format_message()) from error  # type: ignore[attr-defined]
    return config
