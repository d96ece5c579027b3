"""Command lines of settings classes: read in a terminal, or from flags in a file."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from enum import EnumType
from typing import Annotated, Any, get_origin

import typer
from typer.models import OptionInfo

from specwhisper import __version__
from specwhisper.errors import InvalidRequest, MissingExtra, SpecWhisperError
from specwhisper.extras import MISSING_EXTRA_STATUS
from specwhisper.observe.logs import configure_logging
from specwhisper.printable import escaped
from specwhisper.settings.choices import one_of
from specwhisper.settings.setting import Config, Option, make_settings, options_of
from specwhisper.settings.typer_compat import UsageError


def show_version(is_wanted: bool) -> None:
    """Print the version and exit."""
    if is_wanted:
        typer.echo(f"specwhisper {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=show_version,
        is_eager=True,
        allow_from_autoenv=False,
        help="Print the version and exit.",
    ),
]


def run_command(program: str, settings: type[Config], serve: Callable[[Config], None]) -> None:
    """Read this process's command line and environment, and serve.

    The docstring of ``serve`` is the text of --help.
    """

    def command(**values: Any) -> None:
        try:
            serve(_configured(settings, values))
        except MissingExtra as error:
            print(f"{program}: {escaped(str(error))}", file=sys.stderr)
            sys.exit(MISSING_EXTRA_STATUS)
        except SpecWhisperError as error:
            sys.exit(f"{program}: {escaped(str(error))}")

    command.__doc__ = inspect.getdoc(serve)
    app_of(settings, command)()


def config_from(settings: type[Config], flags: Mapping[str, object]) -> Config:
    """Read flags from a mapping, by the rules of the command line.

    ``{"max-sessions": 8, "insecure": True}`` is ``--max-sessions 8 --insecure``; null values are left out. A
    list repeats its flag.
    """
    app = app_of(settings, lambda **values: _configured(settings, values))
    command = typer.main.get_command(app)
    negations = {name for option in command.params for name in option.secondary_opts}
    words = []
    for name, value in flags.items():
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words += [f"--no-{name}"] if f"--no-{name}" in negations else []
        elif value is not None:
            for each in value if isinstance(value, list) else [value]:
                words += [f"--{name}", str(each)]
    try:
        config: Config = command.main(words, prog_name="", standalone_mode=False)
    except UsageError as error:
        raise InvalidRequest(error.format_message()) from error  # type: ignore[attr-defined]
    return config


def app_of(settings: type[Config], function: Callable[..., Any]) -> typer.Typer:
    """Return a program that calls a function with a settings class's flags.

    They are keyword arguments.
    """

    def command(**values: Any) -> Any:
        values.pop("version")
        return function(**values)

    parameters = [_parameter(option) for option in options_of(settings)]
    parameters.append(_parameter_of("version", Version, False))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = function.__doc__
    app = typer.Typer(add_completion=False)
    app.command(context_settings={"auto_envvar_prefix": "SPECWHISPER"})(command)
    return app


def _configured(settings: type[Config], values: Mapping[str, Any]) -> Config:
    config = make_settings(settings, values)
    configure_logging(config.log_format, config.log_level)
    return config


def _parameter(option: Option) -> inspect.Parameter:
    """Return a flag as typer reads it; a switch that is off has no --no- form."""
    setting, annotation = option.setting, option.annotation
    value_type = annotation.__origin__ if get_origin(annotation) is Annotated else annotation
    info = OptionInfo(
        default=...,
        param_decls=(option.flag,) if option.default is False else None,
        metavar=setting.metavar,
        parser=one_of(value_type) if isinstance(value_type, EnumType) else None,
        help=setting.help,
        file_okay=not setting.is_folder,
        show_envvar=False,
        rich_help_panel=setting.panel,
    )
    return _parameter_of(option.name, Annotated[value_type, info], option.default)


def _parameter_of(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
