"""Declare options: fields of dataclasses that say everything about themselves, once.

A field's annotation, default and :class:`Option` are the only description of an option. Command lines, the
environment of servers, HTTP forms, the wire's messages, errors and generated pages follow from it.

A dataclass that declares options calls :func:`validate` in its ``__post_init__``.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, TypeVar, cast

from specwhisper.errors import InvalidRequest, SpecWhisperError, within_floats

ABOVE_0, LARGEST = math.ulp(0.0), sys.float_info.max  # bounds that leave out 0 and infinity
REQUIRED: Any = MISSING  # in place of a default
MAX_SHOWN = 200  # characters of a value in an error
Kind = TypeVar("Kind")

_spelling: ContextVar[Mapping[str, str]] = ContextVar("spelling", default={})  # noqa: B039 (never changed)


class Rule(NamedTuple):
    """A condition for a value, and what the value must be."""

    allows: Callable[[Any], object]
    message: str


NAMED = Rule(str.strip, "write a name, or leave it out")
DEVICE = Rule(
    re.compile(r"cpu|mps|auto|cuda(:\d{1,3})?").fullmatch,
    "choose cpu, cuda, one GPU such as cuda:1, mps or auto",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, as far as its field's name, type and default do not describe it.

    Attributes
    ----------
    help : what the value is, and its default where that is not in the code. Programs do not offer an option
        without it.
    metavar : placeholder for the value in --help; empty for a switch.
    panel : heading in a server's --help.
    flags : names on a command line, without dashes; by default the field's name.
    read : converts a value, or raises ``ValueError`` with what it must be.
    bounds : lowest and highest number, both allowed.
    choices : all values, if it has only these.
    takes_none : whether ``None`` is a value of its own; otherwise it stands for the default.
    repeats : whether its flag may be repeated; ``read`` and ``rules`` are then those of one value.
    needs : other options of a command line; without any of them it has no effect.
    not_with : other options of a command line; with one of them it has no effect.
    at_most : the option of a command line that it may not exceed.
    """

    help: str = ""
    metavar: str = ""
    panel: str = ""
    flags: tuple[str, ...] = ()
    read: Callable[[Any], Any] | None = None
    rules: tuple[Rule, ...] = ()
    bounds: tuple[float, float] | None = None
    choices: tuple[Any, ...] = ()
    takes_none: bool = False
    repeats: bool = False
    needs: tuple[str, ...] = ()
    not_with: tuple[str, ...] = ()
    at_most: str = ""
    is_argument: bool = False
    is_hidden: bool = False


def option(default: Any, help: str = "", metavar: str = "", **about: Any) -> Any:
    """Declare an option; ``about`` has other attributes of :class:`Option`."""
    metadata = {"option": Option(help=help, metavar=metavar, **about)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def text(default: Any = "", help: str = "", metavar: str = "TEXT", **about: Any) -> Any:
    return option(default, help, metavar, read=to_text, **about)


def switch(default: bool | None = False, help: str = "", **about: Any) -> Any:
    return option(default, help, read=partial(_to_instance, bool, "True or False"), **about)


def choice(default: Any, help: str = "", metavar: str = "", choices: Sequence[Any] = (), **about: Any) -> Any:
    """Declare an option that is one of some values, by default all of its default's kind."""
    values = tuple(choices or list(type(default)))  # type: ignore[call-overload]
    return option(default, help, metavar, read=partial(_to_choice, values), choices=values, **about)


def whole(
    default: Any, lowest: float, highest: float, help: str = "", metavar: str = "N", **about: Any
) -> Any:
    """Declare an option that is a whole number between bounds, both included."""
    return _numeric(default, lowest, highest, help, metavar, read=_to_int, **about)


def number(
    default: float | None, lowest: float, highest: float, help: str = "", metavar: str = "X", **about: Any
) -> Any:
    """Declare an option that is a number between bounds, both included."""
    return _numeric(default, lowest, highest, help, metavar, read=_to_float, **about)


def _numeric(
    default: float | None,
    lowest: float,
    highest: float,
    help: str,
    metavar: str,
    *,
    must: str = "",
    **about: Any,
) -> Any:
    rule = Rule(lambda value: lowest <= value <= highest, must or _between(lowest, highest))
    return option(default, help, metavar, rules=(rule,), bounds=(lowest, highest), **about)


def _between(lowest: float, highest: float) -> str:
    least = "above 0" if lowest == ABOVE_0 else f"at least {lowest:.15g}"
    if highest >= LARGEST:
        return f"it must be {least}"
    if lowest == ABOVE_0:
        return f"it must be {least} and at most {highest:.15g}"
    return f"it must lie between {lowest:.15g} and {highest:.15g}"


def described(kind: type[Kind]) -> type[Kind]:
    """Add the options of a dataclass to its docstring, for ``help()``."""
    about = {declared.name: option_of(declared) for declared in fields(kind)}  # type: ignore[arg-type]
    lines = [
        f"{name} : {option.help}" for name, option in about.items() if option is not None and option.help
    ]
    kind.__doc__ = "\n".join([inspect.getdoc(kind) or "", "", "Attributes", "----------", *lines])
    return kind


def option_of(declared: Field[Any]) -> Option | None:
    """Return what a field says about its option; ``None`` if it declares none."""
    return declared.metadata.get("option")


def default_of(declared: Field[Any]) -> Any:
    """Return a field's default; ``MISSING`` if it has none."""
    return declared.default if declared.default_factory is MISSING else declared.default_factory()


def validate(options: Any) -> None:
    """Convert and check the values of a dataclass.

    ``None`` stands for the default, unless it is a value of its own.

    Raise :class:`InvalidRequest` for the first value that breaks a rule.
    """
    given = {declared.name: getattr(options, declared.name) for declared in fields(options)}
    for name, value in checked(type(options), given).items():
        object.__setattr__(options, name, value)


def checked(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given for a dataclass, converted and checked as :func:`validate` does."""
    values = dict(given)
    for declared in fields(kind):
        about, value = option_of(declared), given.get(declared.name)
        if about is None or declared.name not in given:
            continue
        if value is None:
            value = None if about.takes_none else default_of(declared)
        elif about.repeats:
            value = tuple(_checked(declared.name, each, about) for each in value)
        else:
            value = _checked(declared.name, value, about)
        values[declared.name] = value
    return values


def called(name: str) -> str:
    """Return an option's name as its user writes it: as a flag, where a command line is read."""
    return _spelling.get().get(name, name)


@contextmanager
def spelled(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors in the context call options by other names, such as flags."""
    token = _spelling.set({**_spelling.get(), **names})
    try:
        yield
    finally:
        _spelling.reset(token)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Let errors in the context, such as those of a file, begin with an option's name."""
    try:
        yield
    except SpecWhisperError as error:
        raise type(error)(f"{called(name)}: {error}") from error.__cause__


def refusal(name: str, value: Any, reason: object) -> InvalidRequest:
    """Return the error about an option's value."""
    return InvalidRequest(f"{called(name)} is {_shown(value)}: {reason}.", called(name))


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


def number_in(text: Any) -> Any:
    """Return the number that a text is; leave anything else as it is, for its option to refuse."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text) if isinstance(text, str) else text
    return text


def to_floats(value: Any) -> tuple[float, ...]:
    """Convert a number, or several; raise ``ValueError`` for anything else."""
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    if isinstance(value, str) or not all(map(is_number, values)):
        raise ValueError("it must be a number, or several")
    return tuple(float(within_floats(one)) for one in values)


def _shown(value: Any) -> str:
    """Return a value's first characters: an error crosses the wire in a header."""
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _checked(name: str, value: Any, about: Option) -> Any:
    value = given = within_floats(value) if is_number(value) else value
    try:
        with naming(name):
            value = value if about.read is None else about.read(value)
        for rule in about.rules:
            if not rule.allows(value):
                raise ValueError(rule.message)
    except ValueError as error:
        written = given if isinstance(given, str | Real) else value
        raise refusal(name, written, error) from None
    return value


def _to_instance(kind: type, name: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it must be {name}")
    return value


def _to_choice(choices: Sequence[Any], value: Any) -> Any:
    if value not in choices:
        raise ValueError(f"choose from {', '.join(map(str, choices))}")
    return choices[choices.index(value)]


def _to_int(value: Any) -> int:
    if not (is_number(value) and math.isfinite(value) and int(value) == value):
        raise ValueError("it must be a whole number")
    return int(value)


def _to_float(value: Any) -> float:
    if not is_number(value):
        raise ValueError("it must be a number")
    return float(value)
