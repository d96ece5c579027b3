"""Commands whose options are the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, NewType, TypeVar, get_type_hints

import typer

from specwhisper.extras import offers

Options = TypeVar("Options")
Given = NewType("Given", frozenset[str])  # names of the options that do not have their default


@dataclass(frozen=True, slots=True)
class OptionsOfExtra:
    """Annotation of a field that an extra's function makes: call its value to get what it makes.

    The options are the function's annotated parameters. The field keeps its default without the extra.

    Attributes
    ----------
    group, name : the entry point's group, without ``specwhisper.``, and its name.
    """

    group: str
    name: str


def takes(
    options: type[Options],
) -> Callable[[Callable[[typer.Context, Options], None]], Callable[..., None]]:
    """Make the fields of a dataclass the options of a command.

    A field's annotation is typer's. A field that is itself such a dataclass stands for its own fields, one
    that is :class:`OptionsOfExtra` for the parameters of an extra's function. One of the type ``Given`` is
    no option.
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
    for field, kind in _fields(options):
        if _is_group(kind):
            yield from _parameters(kind)
        elif inspect.isfunction(kind):
            yield from _parameters_of(kind)
        elif kind is not Given:
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )


def _parameters_of(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for each in inspect.signature(function, eval_str=True).parameters.values():
        yield each.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _made(options: type[Any], values: Mapping[str, Any], given: Given) -> Any:
    def value(name: str, kind: Any) -> Any:
        if _is_group(kind):
            return _made(kind, values, given)
        if inspect.isfunction(kind):
            return partial(kind, **{each.name: values[each.name] for each in _parameters_of(kind)})
        return given if kind is Given else values[name]

    return options(**{field.name: value(field.name, kind) for field, kind in _fields(options)})


def _fields(options: type[Any]) -> Iterator[tuple[Field[Any], Any]]:
    """Yield fields and their types; in place of a type, the extra's function."""
    annotations: dict[str, Any] = get_type_hints(options, include_extras=True)
    for field in fields(options):
        kind = annotations[field.name]
        metadata = getattr(kind, "__metadata__", ())
        offered = next((each for each in metadata if isinstance(each, OptionsOfExtra)), None)
        if offered is None:
            yield field, kind
        elif (offer := offers(offered.group).get(offered.name)) is not None:
            yield field, offer.load()


def _is_group(kind: Any) -> bool:
    return is_dataclass(kind)
