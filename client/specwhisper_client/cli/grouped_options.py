"""Commands whose options are the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, NewType, TypeVar, get_type_hints

import typer

Options = TypeVar("Options")
Given = NewType("Given", frozenset[str])  # names of the options that do not have their default


def takes(
    options: type[Options],
) -> Callable[[Callable[[typer.Context, Options], None]], Callable[..., None]]:
    """Make the fields of a dataclass the options of a command.

    A field's annotation is typer's. A field that is itself such a dataclass stands for its own fields, and
    one of the type ``Given`` is no option.
    """

    def decorate(command: Callable[[typer.Context, Options], None]) -> Callable[..., None]:
        def run(context: typer.Context, **values: Any) -> None:
            sources = {name: context.get_parameter_source(name) for name in values}
            given = {name for name, source in sources.items() if source and source.name != "DEFAULT"}
            command(context, _made(options, values, Given(frozenset(given))))

        parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        parameters += _parameters(options)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _parameters(options: type[Any]) -> Iterator[inspect.Parameter]:
    for field, annotation in _fields(options):
        if _is_group(annotation):
            yield from _parameters(annotation)
            continue
        if annotation is Given:
            continue
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )


def _made(options: type[Any], values: Mapping[str, Any], given: Given) -> Any:
    def value(name: str, annotation: Any) -> Any:
        if _is_group(annotation):
            return _made(annotation, values, given)
        return given if annotation is Given else values[name]

    return options(**{field.name: value(field.name, annotation) for field, annotation in _fields(options)})


def _fields(options: type[Any]) -> Iterator[tuple[Field[Any], Any]]:
    annotations: dict[str, Any] = get_type_hints(options, include_extras=True)
    return ((field, annotations[field.name]) for field in fields(options))


def _is_group(annotation: Any) -> bool:
    return is_dataclass(annotation)
