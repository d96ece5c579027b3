"""Forms and messages as classes of options, whose values are read as those of a command line are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from specwhisper.validated import (
    LARGEST,
    Option,
    called,
    checked,
    default_of,
    number_in,
    option_of,
    refusal,
    spelled,
)
from specwhisper_gateway.errors import InvalidField

SHOWN_CHARS = 100
UNKNOWN = "unknown_parameter"
NOT_OPENAIS = "Not OpenAI's: "
SWITCHES = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
JSON_TYPES = {bool: "boolean", int: "integer", float: "number", tuple: "array", dict: "object"}

T = TypeVar("T")
OnUnknown = Callable[[str, str, Any], None]


def within(kind: type[Any], **about: Any) -> Any:
    """Declare an object in a message, which has the options of a class."""
    return field(default=None, metadata={"within": kind, "option": Option(**about)})


def with_options(
    kind: type[Any],
    *names: str,
    note: str = "",
    defaults: Mapping[str, Any] | None = None,
    **renamed: str,
) -> Callable[[type[T]], type[T]]:
    """Add options of another class to a dataclass: decorate the class that ``dataclass`` decorates.

    Parameters
    ----------
    note : put before the descriptions.
    defaults : defaults that are not the option's own, by name.
    renamed : an option's own name, by the name of its field.
    """
    declared = {each.name: each for each in fields(kind)}

    def add(cls: type[T]) -> type[T]:
        for name, source in (dict(zip(names, names, strict=True)) | renamed).items():
            about, type_ = option_of(declared[source]) or Option(), _type_of(kind, source)
            help = about.help[:1].lower() + about.help[1:] if note else about.help
            metadata: dict[str, Any] = {"option": replace(about, help=note + help)}
            if is_dataclass(type_):
                metadata["within"] = type_
            default = (defaults or {}).get(name, default_of(declared[source]))
            setattr(cls, name, field(default=default, metadata=metadata))
            cls.__annotations__[name] = type_
        return cls

    return add


def values_of(
    kind: type[Any], message: Mapping[str, Any], path: str = "", on_unknown: OnUnknown | None = None
) -> dict[str, Any]:
    """Return what a message has of a class of options, converted and checked.

    Raises ``InvalidRequest`` for the first key that is unknown or missing, or whose value is invalid.

    Parameters
    ----------
    on_unknown : called with each unknown key's path, name and value, which are otherwise an error.
    """
    known = {declared.name: declared for declared in fields(kind)}
    for key, value in message.items():
        if key in known:
            continue
        name = path + key[:SHOWN_CHARS]
        if on_unknown is None:
            choice = ", ".join(sorted(known))
            raise InvalidField(f"{name} is not known: leave it out, or choose from {choice}.", name, UNKNOWN)
        on_unknown(name, key, value)
    for name, declared in known.items():
        if message.get(name) is None and default_of(declared) is MISSING:
            raise InvalidField(f"{path}{name} is missing.", path + name, "missing_required_parameter")
    with spelled({name: f"{path}{name}{'[]' * is_list(kind, name)}" for name in known}):
        given = {
            name: _prepared(kind, declared, message[name], on_unknown)
            for name, declared in known.items()
            if name in message
        }
        return checked(kind, given)


def is_list(kind: type[Any], name: str) -> bool:
    return _type_of(kind, name) is tuple


def parse_object(value: Any) -> Any:
    """Read an object that a form has as JSON, instead of in fields such as ``vad_parameters[threshold]``."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return value


def to_object(value: Any) -> dict[str, Any]:
    value = parse_object(value)
    if not isinstance(value, dict):
        raise ValueError("it must be a JSON object")
    return value


def schema_of(kind: type[Any], declared: Field[Any]) -> dict[str, Any]:
    """Return the JSON schema of a form's field."""
    about, default = option_of(declared) or Option(), default_of(declared)
    type_ = dict if "within" in declared.metadata else _type_of(kind, declared.name)
    schema: dict[str, Any] = {"type": JSON_TYPES.get(type_, "string"), "description": about.help}
    if default not in (MISSING, None, ()):
        schema["default"] = default
    for name, bound in zip(("minimum", "maximum"), about.bounds or (), strict=False):
        if abs(bound) < LARGEST:
            schema[name] = bound
    if type_ is tuple:
        return schema | {"items": {"type": "string"} | _choices(about)}
    return schema | _choices(about)


def _choices(about: Option) -> dict[str, Any]:
    return {"enum": list(about.choices)} if about.choices else {}


def _prepared(kind: type[Any], declared: Field[Any], value: Any, on_unknown: OnUnknown | None) -> Any:
    """Return a value as its option reads it: texts of a form become numbers, switches and objects."""
    if value is None:
        return None
    if (inner := declared.metadata.get("within")) is not None:
        try:
            message = to_object(value)
        except ValueError as error:
            raise refusal(declared.name, value, error) from None
        return values_of(inner, message, f"{called(declared.name)}.", on_unknown)
    type_ = _type_of(kind, declared.name)
    if type_ is tuple and not isinstance(value, list):
        raise refusal(called(declared.name).removesuffix("[]"), value, "it must be a list")
    if type_ is bool:
        if (switch := SWITCHES.get(str(value).lower())) is None:
            raise refusal(declared.name, value, "it must be true or false")
        return switch
    return number_in(value) if type_ in (int, float) else value


@cache
def _types(kind: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _type_of(kind: Callable[..., Any], name: str) -> Any:
    """Return the type of an option that has a value; ``tuple`` for any tuple."""
    type_ = _types(kind)[name]
    if get_origin(type_) is UnionType:
        type_ = next(each for each in get_args(type_) if each is not NoneType)
    return get_origin(type_) or type_
