"""The parts of every program: options, a terminal, a folder for its files, bars, a file of raw figures."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Concatenate, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from transformers.utils import logging

from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from specwhisper.errors import InvalidRequest, SpecWhisperError

SHOWN_LINES = 20  # most lines about what is wrong
Options = ParamSpec("Options")
Value = TypeVar("Value")

Quick = Annotated[bool, typer.Option("--quick", help="A short run of at most two minutes on two cores.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness: order, resampling.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", dir_okay=False, help="File for raw figures, machine and versions.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Compare the results with the bars; exit with 1 if one fails.")
]
SHARED = {"quick": (Quick, False), "seed": (Seed, 0), "json": (JsonFile, None), "check": (Check, False)}
Audio = Annotated[
    list[Path] | None,
    typer.Option(
        "--audio", exists=True, dir_okay=False, help="A recording; repeat for more. [default: bundled]"
    ),
]
Folder = Annotated[Path, typer.Option(exists=True, file_okay=False, help="Recordings and metadata.jsonl.")]
Target = Annotated[str, typer.Option(help="Target model: bundled name, Whisper size, hub id or folder.")]
Draft = Annotated[str, typer.Option(help="Draft model: bundled name, Whisper size, hub id or folder.")]
Rounds = Annotated[int, typer.Option(min=1, help="How often everything is repeated.")]


@dataclass(frozen=True, slots=True)
class Program:
    """The parts that a program gets in addition to its own options.

    Attributes
    ----------
    quick : whether at most two minutes on two cores are there.
    seed : seed of all randomness.
    folder : for its files; removed at the end.
    """

    quick: bool
    seed: int
    json: Path | None
    check: bool
    console: Console
    folder: Path

    def choose(self, quick: Value, full: Value) -> Value:
        return quick if self.quick else full

    def save(
        self,
        models: Mapping[str, Any],
        figures: Mapping[str, Any],
        bars: Sequence[Bar] = (),
        wrong: Sequence[str] = (),
    ) -> None:
        """Write the raw figures, if a file for them was named."""
        if self.json is not None:
            more = {"bars": [str(bar) for bar in bars], "wrong": list(wrong)}
            write_json(self.json, models=models, figures={**figures, **more})

    def end(
        self,
        models: Mapping[str, Any],
        figures: Mapping[str, Any],
        bars: Sequence[Bar] = (),
        wrong: Sequence[str] = (),
    ) -> NoReturn:
        """Save, show what is wrong and the bars, and exit with 1 for either if a checked bar is short."""
        self.save(models, figures, bars, wrong)
        for line in wrong[:SHOWN_LINES]:
            self.print(f"WRONG: {line}", style="red")
        all_hold = print_bars(bars, self.console)
        sys.exit(1 if wrong or (self.check and not all_hold) else 0)

    def print(self, text: str, style: str | None = None) -> None:
        """Print a line as it is, however long."""
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def program(run: Callable[Concatenate[Program, Options], None]) -> Callable[..., None]:
    """Return a command with the options that all have; our own error ends it with its message alone."""

    @wraps(run)
    def command(*args: Any, **options: Any) -> None:
        logging.set_verbosity_error()
        shared = {name: options.pop(name, default) for name, (_, default) in SHARED.items()}
        with TemporaryDirectory() as folder:
            given = Program(**shared, console=open_console(), folder=Path(folder))
            try:
                run(given, *args, **options)
            except SpecWhisperError as error:
                sys.exit(f"{'.'.join(run.__module__.split('.')[:2])}: {error}")

    _, *parameters = inspect.signature(run, eval_str=True).parameters.values()
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=type_)
        for name, (type_, default) in SHARED.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def parse_list(words: str, flag: str, parse: Callable[[str], Value], wanted: str) -> list[Value]:
    """Parse comma-separated words, without repetitions; ``parse`` raises ValueError for a wrong one."""
    try:
        return list(dict.fromkeys(parse(word.strip()) for word in words.split(",")))
    except ValueError:
        raise InvalidRequest(f"{flag} is '{words}': pass {wanted}, separated by commas.") from None


def at_least(least: float, number: Callable[[str], Value]) -> Callable[[str], Value]:
    """Return what parses a number that is not smaller, and finite."""

    def parse(word: str) -> Value:
        if not least <= float(word) < inf:
            raise ValueError(word)
        return number(word)

    return parse


def parse_levels(words: str) -> tuple[int, ...]:
    """Parse numbers of sessions; return them in ascending order."""
    return tuple(sorted(parse_list(words, "--sessions", at_least(1, int), "numbers from 1 on")))
