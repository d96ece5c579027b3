"""Command lines of classes of options: read in a terminal, or from flags in a file."""

from __future__ import annotations

import errno
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from typer.core import TyperCommand

from specwhisper import __version__
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.observe.logs import configure_logging
from specwhisper.printable import escaped
from specwhisper.settings.setting import Config, Flag, Part, flags_of
from specwhisper.validated import number_in, spelled

# The base class of click's usage errors, or of those of the copy that newer typers bring.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

# A program that read the output has ended, or the disk is full.
OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC)
WRONG_USAGE = 2  # exit status, as click's
NUMBERS = (int, float, int | None, float | None)

Options = TypeVar("Options")


def show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"specwhisper {__version__}")
        raise typer.Exit


VERSION = inspect.Parameter(
    "version",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--version",
            callback=show_version,
            is_eager=True,
            allow_from_autoenv=False,
            help="Print the version and exit.",
        ),
    ],
)


def run_command(program: str, settings: type[Config], serve: Callable[[Config], None]) -> None:
    """Read this process's command line and environment, and serve.

    The docstring of ``serve`` is the text of --help.
    """
    app_of(settings, serve, program)(prog_name=program)


@contextmanager
def reading() -> Iterator[None]:
    """Errors in the context are those of the command line, so that the exit status is 2."""
    try:
        yield
    except SpecWhisperError as error:
        error.exit_status = WRONG_USAGE
        raise


class OneSentence:
    """A command that ends with one sentence about an error, and its exit status."""

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        run = partial(super().main, *args, standalone_mode=False, **more)  # type: ignore[misc]
        if not standalone_mode:
            return run()
        try:
            sys.exit(run())
        except UsageError as error:
            self.report(_sentence(error))
            sys.exit(WRONG_USAGE)
        except SpecWhisperError as error:
            self.report(error)
            sys.exit(error.exit_status)
        except (OSError, BaseExceptionGroup) as error:
            lost: BaseException = error
            while isinstance(lost, BaseExceptionGroup):
                lost = lost.exceptions[0]
            if not isinstance(lost, OSError) or lost.errno not in OUTPUT_ERRORS:
                raise
            if lost.errno != errno.EPIPE:
                self.report(f"The output cannot be written: {lost.strerror}.")
            # What is left of the output goes nowhere: Python would write it at its end, and fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, whose types in Python --help leaves out: most have a placeholder."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            parameter.display_type = lambda ctx: ""
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return list(super().parse_args(ctx, args))  # type: ignore[misc]
        except UsageError as error:
            error.ctx = error.ctx or ctx  # type: ignore[attr-defined]  # the parser's own errors have none
            raise

    def report(self, error: SpecWhisperError | str) -> None:
        print(f"{self.name}: {escaped(str(error))}", file=sys.stderr)  # type: ignore[attr-defined]


class Program(OneSentence, TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self.params:
            on, off = (
                next(filter(args.__contains__, names), None) for names in (option.opts, option.secondary_opts)
            )
            if on and off:
                with reading():
                    raise InvalidRequest(f"{on} and {off} contradict each other: leave one out.")
        return super().parse_args(ctx, args)


def config_from(settings: type[Config], flags: Mapping[str, object]) -> Config:
    """Read flags from a mapping, by the rules of the command line.

    ``{"max-sessions": 8, "insecure": True}`` is ``--max-sessions 8 --insecure``; null values are left out. A
    list repeats its flag.
    """
    command = typer.main.get_command(app_of(settings, lambda config: config))
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
        raise InvalidRequest(_sentence(error)) from error
    return config


def app_of(settings: type[Config], serve: Callable[[Config], Any], program: str = "") -> typer.Typer:
    """Return the program that calls a function with the settings of its command line and environment."""

    def command(_: typer.Context, config: Config) -> Any:
        configure_logging(config.log_format, config.log_level)
        return serve(config)

    command.__doc__ = inspect.getdoc(serve)
    app = typer.Typer(add_completion=False)
    app.command(program, cls=Program, context_settings={"auto_envvar_prefix": "SPECWHISPER"})(
        _command(command, Part(kind=settings), flags_of(settings), VERSION)
    )
    return app


def takes(
    options: type[Options] | Part, *more: inspect.Parameter
) -> Callable[[Callable[[typer.Context, Options], None]], Callable[..., None]]:
    """Make the fields of a class the options of a command, which is called with an instance."""

    def decorate(command: Callable[[typer.Context, Options], None]) -> Callable[..., None]:
        part = options if isinstance(options, Part) else Part(kind=options)
        return _command(command, part, list(part.flags()), *more)

    return decorate


def _command(
    command: Callable[[typer.Context, Any], Any], part: Part, flags: Sequence[Flag], *more: inspect.Parameter
) -> Callable[..., Any]:
    """Return a command as typer reads it; what it raises calls options by their flags."""

    def run(context: typer.Context, **values: Any) -> Any:
        sources = {name: getattr(context.get_parameter_source(name), "name", "DEFAULT") for name in values}
        written = {
            flag.name: f"${flag.variable}" if sources[flag.name] == "ENVIRONMENT" else flag.flag
            for flag in flags
            if sources[flag.name] != "DEFAULT"
        }
        with spelled({flag.field: written.get(flag.name, flag.flag) for flag in flags}):
            with reading():
                value = part.value(values, written)
            return command(context, value)

    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parameters += [*map(_parameter, flags), *more]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _parameter(flag: Flag) -> inspect.Parameter:
    """Return a flag as typer reads it; a switch that is off has no --no- form."""
    about, kind = flag.option, _kind(flag)
    default = flag.default.value if isinstance(flag.default, Enum) else flag.default
    default = None if default == () else default
    default = f"{default:.15g}" if isinstance(default, float) else default  # --help shows 60, not 60.0
    names = [f"--{name}" if len(name) > 1 else f"-{name}" for name in about.flags[1:]]
    if names or default is False:
        names = [flag.flag, *names]
    info = (typer.Argument if about.is_argument else typer.Option)(
        *([] if about.is_argument else names),
        metavar=about.metavar or None,
        parser=partial(_number, takes_none=about.takes_none) if kind in NUMBERS else None,
        help=about.help,
        show_envvar=False,
        rich_help_panel=about.panel or None,
        hidden=about.is_hidden,
    )
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, info],
    )


def _kind(flag: Flag) -> Any:
    """Return the type that typer converts to; what it does not know is read from its text."""
    kinds = get_args(flag.annotation) if get_origin(flag.annotation) in (Union, types.UnionType) else ()
    kind = next((each for each in kinds if each is not type(None)), flag.annotation)
    if flag.option.repeats:
        kind = list[Path] if get_args(kind)[:1] == (Path,) else list[str]
    elif kind not in (bool, int, float, Path):
        kind = str
    return kind if flag.default is MISSING else kind | None


def _number(text: Any, *, takes_none: bool) -> Any:
    """Read a number, or ``None`` as openai/whisper's command line does."""
    return None if takes_none and text == "None" else number_in(text)


def _sentence(error: Any) -> str:
    """Return what is wrong with a command line, as its parser found."""
    context, option = error.ctx, getattr(error, "option_name", "")
    parameter: Any = getattr(error, "param", None)
    if hasattr(error, "possibilities"):
        parents = context.parent.command.params if context.parent is not None else ()
        if any(option in parameter.opts for parameter in parents):
            return (
                f"{option} is an option of {context.parent.command_path}: put it before {context.info_name}."
            )
    if getattr(parameter, "is_flag", False):  # only a variable gives a switch a value
        variable = f"SPECWHISPER_{parameter.name.upper()}"
        return f"${variable} is '{os.environ.get(variable)}': it must be 1 or 0."
    found = error.format_message().rstrip(".")
    return f"{found}{'' if found.endswith('?') else '.'} See {context.command_path} --help."
