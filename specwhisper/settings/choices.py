"""Flags whose value is one of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeVar

import typer

Choice = TypeVar("Choice", bound=StrEnum)


def one_of(choices: Iterable[Choice]) -> Callable[[str], Choice]:
    """Return a parser of values that are written as they are.

    typer's own puts pydantic's "Value error" before what is wrong.
    """
    values = tuple(choices)

    def parse(name: str) -> Choice:
        for value in values:
            if value == name:
                return value
        raise typer.BadParameter(f"'{name}' is none of {', '.join(values)}.")

    return parse
