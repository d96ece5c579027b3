"""Fields of requests that are options: types, bounds and descriptions are those of the options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import EnumType
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field

from specwhisper.validated import default_of, option_of

NOT_OPENAIS = "Not OpenAI's: "


def option_fields(
    kind: type[Any],
    *names: str,
    note: str = "",
    defaults: Mapping[str, Any] | None = None,
    is_partial: bool = False,
) -> dict[str, Any]:
    """Return fields for ``pydantic.create_model``.

    Parameters
    ----------
    note : put before the descriptions.
    defaults : defaults that are not the option's own, by name.
    is_partial : whether ``None`` is the default of each, for messages that change some.
    """
    types = get_type_hints(kind)
    found: dict[str, Any] = {}
    for declared in fields(kind):
        if declared.name not in names or (about := option_of(declared)) is None:
            continue
        lowest, highest = about.bounds or (None, None)
        help = about.help[:1].lower() + about.help[1:] if note else about.help
        details = Field(ge=lowest, le=highest, description=note + help)
        default = None if is_partial else (defaults or {}).get(declared.name, default_of(declared))
        type_ = _type(types[declared.name])
        if type_ in (list[str], dict[str, float]):
            default = type_()
        if type_ == dict[str, float]:
            type_ = Annotated[type_, BeforeValidator(parse_object)]
        found[declared.name] = (Annotated[type_ | None if default is None else type_, details], default)
    return found


def parse_object(value: Any) -> Any:
    """Read an object that a form has as JSON, instead of in fields such as ``vad_parameters[threshold]``."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return value


def _type(annotation: Any) -> Any:
    """Return the type of a field of a form or of JSON."""
    if get_origin(annotation) is UnionType:
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    if isinstance(annotation, EnumType):
        members: Any = annotation.__members__.values()
        return Literal[tuple(each.value for each in members)]
    if get_origin(annotation) is tuple:
        return list[str]
    return dict[str, float] if is_dataclass(annotation) else annotation
