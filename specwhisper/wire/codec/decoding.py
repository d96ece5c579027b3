"""Convert modes and options.

A message's field and a dataclass's option have the same name. An option is thus declared twice: in Python,
and in ``proto/`` for clients in other languages. A field that is not set stands for the option's default.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from specwhisper.errors import UnsupportedOption
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions, options_from
from specwhisper.types import SERVER_MODES, Mode
from specwhisper.wire.codec.fields import filled, name_of, number_of, values_in
from specwhisper.wire.v1 import decoding_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2


def mode_to_proto(mode: Mode) -> pb.Mode:
    if mode not in SERVER_MODES:
        raise UnsupportedOption(
            f"Mode '{mode}' is not one of a server's; choose from: {', '.join(SERVER_MODES)}."
        )
    return cast("pb.Mode", number_of(pb.Mode.DESCRIPTOR, Mode(mode)))  # a caller may write its value


def mode_from_proto(number: int) -> Mode:
    return Mode[name_of(pb.Mode.DESCRIPTOR, number)]


def decoding_options_to_proto(options: DecodingOptions) -> pb.DecodingOptions:
    """Encode decoding options; those that select audio are the client's and its draft server's."""
    if options.vad_filter:
        raise UnsupportedOption("vad_filter is True: it is for whole recordings only, as files.")
    message = filled(pb.DecodingOptions(greedy=True), options)  # so that what is absent is left out
    if options.language is not None:
        message.languages.append(options.language)
    return message


def decoding_options_from_proto(message: pb.DecodingOptions) -> DecodingOptions:
    options = values_in(message, DecodingOptions, are_set=True)
    if message.HasField("live"):
        options["live"] = LiveOptions(**values_in(message.live, LiveOptions))
    if len(message.languages) == 1:
        options["language"] = options.pop("languages")[0]
    return options_from({}, options | {"greedy": message.greedy})


def recognition_config_to_proto(options: DecodingOptions) -> transcription_pb2.RecognitionConfig:
    decoding = decoding_options_to_proto(options)
    return filled(transcription_pb2.RecognitionConfig(decoding=decoding), options)


def recognition_config_from_proto(message: transcription_pb2.RecognitionConfig) -> DecodingOptions:
    options = decoding_options_from_proto(message.decoding)
    return replace(options, **values_in(message, DecodingOptions, are_set=True))


def endpointing_to_proto(options: EndpointingOptions | None) -> transcription_pb2.Endpointing:
    """Encode the options of endpointing; ``None`` counts all audio as speech."""
    if options is None:
        return transcription_pb2.Endpointing(disabled=True)
    return filled(transcription_pb2.Endpointing(), options)


def endpointing_from_proto(message: transcription_pb2.Endpointing) -> EndpointingOptions | None:
    return None if message.disabled else EndpointingOptions(**values_in(message, EndpointingOptions))
