"""Declare fields of dataclasses together with the rules for their values.

A dataclass that declares them calls :func:`validate` in its ``__post_init__``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, field, fields
from enum import StrEnum
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, cast

from specwhisper.errors import InvalidRequest, within_floats

ABOVE_0, LARGEST = math.ulp(0.0), sys.float_info.max  # bounds that leave out 0 and infinity
MAX_SHOWN = 200  # characters of a value in an error


class Rule(NamedTuple):
    """A condition for a value, and what the value must be."""

    allows: Callable[[Any], bool]
    message: str


def option(default: Any, read: Callable[[Any], Any], *rules: Rule) -> Any:
    """Declare an option.

    ``read`` converts its value, or raises ``ValueError`` with what it must be.
    """
    return field(default=default, metadata={"read": read, "rules": rules})


def text(default: str | None = "") -> Any:
    """Declare an option that is text."""
    return option(default, to_text)


def flag(default: bool = False) -> Any:
    """Declare an option that is on or off."""
    return option(default, partial(_to_instance, bool, "True or False"))


def choice(default: StrEnum) -> Any:
    """Declare an option that is one of the values of its default's kind."""
    return option(default, partial(_to_choice, type(default)))


def whole(default: int | None, lowest: float, highest: float, message: str = "") -> Any:
    """Declare an option that is a whole number between bounds, both included."""
    return option(default, _to_int, _between(lowest, highest, message))


def number(default: float | None, lowest: float, highest: float, message: str = "") -> Any:
    """Declare an option that is a number between bounds, both included."""
    return option(default, _to_float, _between(lowest, highest, message))


def threshold(default: float, lowest: float, highest: float, message: str) -> Any:
    """Declare a number between bounds, both included, or ``None`` for no threshold."""
    rule = _between(lowest, highest, f"{message}, or None for no threshold")
    return field(default=default, metadata={"read": _to_float, "rules": (rule,), "takes_none": True})


def validate(options: Any) -> None:
    """Convert and check the values of a dataclass.

    ``None`` stands for the default; for a threshold it is a value of its own.

    Raises
    ------
    InvalidRequest : for the first value that breaks a rule.
    """
    for declared in fields(options):
        value, about = getattr(options, declared.name), declared.metadata
        if value is None and not about.get("takes_none"):
            value = declared.default if declared.default_factory is MISSING else declared.default_factory()
        elif value is not None and "read" in about:
            value = _checked(declared.name, value, about["read"], about["rules"])
        object.__setattr__(options, declared.name, value)


def is_number(value: Any) -> bool:
    """Return whether a value is a real number; numpy's are, ``True`` is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def to_text(value: Any) -> str | None:
    """Return a text, or ``None``; raise ``ValueError`` for anything else."""
    text = cast("str | None", _to_instance(str, "text", value))
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise ValueError("it must be valid Unicode") from error
    return text


def to_floats(value: Any) -> tuple[float, ...]:
    """Convert a number, or several; raise ``ValueError`` for anything else."""
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    if isinstance(value, str) or not all(map(is_number, values)):
        raise ValueError("it must be a number, or several")
    return tuple(float(within_floats(one)) for one in values)


def _shortened(text: str) -> str:
    """Return the first characters: an error crosses the wire in a header."""
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _checked(name: str, value: Any, read: Callable[[Any], Any], rules: Iterable[Rule]) -> Any:
    value = within_floats(value) if is_number(value) else value
    try:
        value = read(value)
    except ValueError as error:
        raise InvalidRequest(f"{name} is {_shortened(repr(value))}: {error}.") from None
    for rule in rules:
        if not rule.allows(value):
            raise InvalidRequest(f"{name} is {_shortened(str(value))}: {rule.message}.")
    return value


def _between(lowest: float, highest: float, message: str) -> Rule:
    message = message or f"it must lie between {lowest:g} and {highest:g}"
    return Rule(lambda value: lowest <= value <= highest, message)


def _to_instance(kind: type, name: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it must be {name}")
    return value


def _to_choice(kind: type[StrEnum], value: Any) -> StrEnum:
    if value not in list(kind):
        raise ValueError(f"choose from {', '.join(kind)}")
    return kind(value)


def _to_int(value: Any) -> int:
    if not (is_number(value) and math.isfinite(value) and int(value) == value):
        raise ValueError("it must be a whole number")
    return int(value)


def _to_float(value: Any) -> float:
    if not is_number(value):
        raise ValueError("it must be a number")
    return float(value)
