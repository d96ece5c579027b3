"""Copy values between a message and a dataclass, whose fields of one name have one meaning."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

from specwhisper.errors import InvalidRequest

AnyMessage = TypeVar("AnyMessage", bound=Message)


# How a field holds its value: whole numbers, as they are compared in each message between two forward passes.
SCALAR, OPTIONAL, CHOICE, LIST, MAP, MESSAGE, MESSAGES = range(7)


def filled(message: AnyMessage, value: Any) -> AnyMessage:
    """Set those fields of a new message that a dataclass has, and return it; ``None`` leaves one absent."""
    kind: Any = type(value)
    for name, shape, enum in _shared(message.DESCRIPTOR, kind):
        part = getattr(value, name)
        if part is None or not (part or shape == OPTIONAL or shape == MESSAGE):
            continue
        if shape == SCALAR or shape == OPTIONAL:
            setattr(message, name, part)
        elif shape == LIST:
            getattr(message, name).extend(part)
        elif shape == CHOICE:
            setattr(message, name, number_of(enum, part))
        elif shape == MAP:
            getattr(message, name).update(part)
        elif shape == MESSAGE:
            getattr(message, name).SetInParent()
            filled(getattr(message, name), part)
        else:
            for each in part:
                filled(getattr(message, name).add(), each)
    return message


def values_in(message: Message, kind: Any, *, are_set: bool = False) -> dict[str, Any]:
    """Return the values of a dataclass that a message has, without those that are messages themselves.

    An absent optional value is ``None``, and so is an unset choice. Choices are the names of an enumeration.

    ``are_set``: leave out values that are absent, empty or 0.
    """
    found: dict[str, Any] = {}
    for name, shape, enum in _shared(message.DESCRIPTOR, kind):
        if shape == MESSAGE or shape == MESSAGES:
            continue
        value = getattr(message, name)
        if shape == OPTIONAL and not message.HasField(name):
            value = None
        elif shape == LIST:
            value = tuple(value)
        elif shape == MAP:
            value = dict(value)
        elif shape == CHOICE:
            value = name_of(enum, value).lower() if value else None
        if not are_set or (value is not None if shape == OPTIONAL else value):
            found[name] = value
    return found


@cache
def _shared(descriptor: Any, kind: Any) -> tuple[tuple[str, int, Any], ...]:
    by_name = descriptor.fields_by_name
    return tuple(
        (each.name, _shape(by_name[each.name]), by_name[each.name].enum_type)
        for each in fields(kind)
        if each.name in by_name
    )


def _shape(field: Any) -> int:
    if field.message_type is not None:
        is_map = field.message_type.GetOptions().map_entry
        return MAP if is_map else MESSAGES if field.is_repeated else MESSAGE
    if field.enum_type is not None:
        return CHOICE
    return LIST if field.is_repeated else OPTIONAL if field.has_presence else SCALAR


@cache
def number_of(enum: EnumDescriptor, choice: Enum) -> int:
    return next(number for number, name in _names(enum).items() if name == choice.name)


def name_of(enum: EnumDescriptor, number: int) -> str:
    """Return the name of a choice; raise :class:`InvalidRequest` for an unset or unknown number."""
    names = _names(enum)
    if number not in names:
        raise InvalidRequest(
            f"{enum.name} {number} is unset or unknown; choose from: {', '.join(names.values())}."
        )
    return names[number]


@cache
def _names(enum: EnumDescriptor) -> dict[int, str]:
    """Return the names without their prefix, by number; the first one stands for an unset choice."""
    prefix = str(enum.values[0].name).removesuffix("UNSPECIFIED")
    return {each.number: each.name.removeprefix(prefix) for each in enum.values[1:]}
