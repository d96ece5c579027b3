"""Convert modes and options.

A message's field and a dataclass's option have the same name. An option is thus declared twice: in Python,
and in ``proto/`` for clients in other languages. A field that is not set stands for the option's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions, options_from
from specwhisper.types import SERVER_MODES, Mode
from specwhisper.wire.v1 import decoding_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2

AnyMessage = TypeVar("AnyMessage", bound=Message)


def mode_to_proto(mode: Mode) -> pb.Mode:
    """Encode a mode of the split service."""
    if mode not in SERVER_MODES:
        raise UnsupportedOption(
            f"Mode '{mode}' is not one of a server's; choose from: {', '.join(SERVER_MODES)}."
        )
    return cast("pb.Mode", _number(pb.Mode.DESCRIPTOR, Mode(mode)))  # a caller may write its value


def mode_from_proto(number: int) -> Mode:
    """Decode a mode; it must be set."""
    return Mode[_name(pb.Mode.DESCRIPTOR, number)]


def decoding_options_to_proto(options: DecodingOptions) -> pb.DecodingOptions:
    """Encode decoding options; those that select audio are the client's and its draft server's."""
    if options.vad_filter:
        raise UnsupportedOption("vad_filter is True: it is for whole recordings only, as files.")
    message = filled(pb.DecodingOptions(greedy=True), options)  # so that what is absent is left out
    if options.language is not None:
        message.languages.append(options.language)
    return message


def decoding_options_from_proto(message: pb.DecodingOptions) -> DecodingOptions:
    options = _options_in(message, DecodingOptions)
    if len(message.languages) == 1:
        options["language"] = options.pop("languages")[0]
    return options_from({}, options | {"greedy": message.greedy})


def recognition_config_to_proto(options: DecodingOptions) -> transcription_pb2.RecognitionConfig:
    """Encode a client's options: those of decoding, and those that select the audio."""
    decoding = decoding_options_to_proto(options)
    return filled(transcription_pb2.RecognitionConfig(decoding=decoding), options)


def recognition_config_from_proto(message: transcription_pb2.RecognitionConfig) -> DecodingOptions:
    """Decode a client's options; the inverse of :func:`recognition_config_to_proto`."""
    options = decoding_options_from_proto(message.decoding)
    return replace(options, **_options_in(message, DecodingOptions))


def endpointing_to_proto(options: EndpointingOptions | None) -> transcription_pb2.Endpointing:
    """Encode the options of endpointing; ``None`` counts all audio as speech."""
    if options is None:
        return transcription_pb2.Endpointing(disabled=True)
    return filled(transcription_pb2.Endpointing(), options)


def endpointing_from_proto(message: transcription_pb2.Endpointing) -> EndpointingOptions | None:
    """Decode the options of endpointing; ``None`` counts all audio as speech."""
    return None if message.disabled else EndpointingOptions(**_options_in(message, EndpointingOptions))


def filled(message: AnyMessage, options: Any) -> AnyMessage:
    """Set the fields of a message that are options of a dataclass, and return it."""
    types = message.DESCRIPTOR.fields_by_name
    for option in fields(options):
        name, value = option.name, getattr(options, option.name)
        if name not in types or value is None:
            continue
        if is_dataclass(value):
            filled(getattr(message, name), value)
        elif (enum := types[name].enum_type) is not None:
            setattr(message, name, _number(enum, value))
        elif isinstance(value, Mapping):
            getattr(message, name).update(value)
        elif isinstance(value, tuple):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


def _options_in(message: Message, kind: type[Any]) -> dict[str, Any]:
    """Return the options of a dataclass that a message has."""
    names = {option.name for option in fields(kind)}
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.name not in names:
            continue
        if field.name == "live":
            value = LiveOptions(**_options_in(value, LiveOptions))
        elif field.enum_type is not None:
            value = _name(field.enum_type, value).lower()
        elif isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = tuple(value)
        found[field.name] = value
    return found


def _prefix(enum: Any) -> str:
    return str(enum.values[0].name).removesuffix("UNSPECIFIED")


def _number(enum: Any, choice: Enum) -> int:
    return int(enum.values_by_name[_prefix(enum) + choice.name].number)


def _name(enum: Any, number: int) -> str:
    """Return the name of a choice; raise :class:`InvalidRequest` for an unset or unknown number."""
    names = {each.number: each.name.removeprefix(_prefix(enum)) for each in enum.values[1:]}
    if number not in names:
        raise InvalidRequest(
            f"{enum.name} {number} is unset or unknown; choose from: {', '.join(names.values())}."
        )
    return str(names[number])
