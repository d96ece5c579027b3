"""Convert a session's terms: its mode and options, limits and vocabulary, hints, and statistics.

A message's field and a dataclass's option have the same name. An option is thus declared twice: in Python,
and in ``proto/`` for clients in other languages. A field that is not set stands for the option's default.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from specwhisper.errors import PairMismatch, UnsupportedOption
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions, options_from
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.hints import check_hint
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import SERVER_MODES, Limits, Mode, TimedHint
from specwhisper.wire.codec.fields import filled, name_of, number_of, values_in
from specwhisper.wire.v1 import decoding_pb2, transcription_pb2
from specwhisper.wire.v1 import verification_pb2 as pb


def mode_to_proto(mode: Mode) -> decoding_pb2.Mode:
    if mode not in SERVER_MODES:
        raise UnsupportedOption(
            f"Mode '{mode}' is not one of a server's; choose from: {', '.join(SERVER_MODES)}."
        )
    number = number_of(decoding_pb2.Mode.DESCRIPTOR, Mode(mode))  # a caller may write its value
    return cast("decoding_pb2.Mode", number)


def mode_from_proto(number: int) -> Mode:
    return Mode[name_of(decoding_pb2.Mode.DESCRIPTOR, number)]


def decoding_options_to_proto(options: DecodingOptions) -> decoding_pb2.DecodingOptions:
    """Encode decoding options; those that select audio are the client's and its draft server's."""
    if options.vad_filter:
        raise UnsupportedOption("vad_filter is True: it is for whole recordings only, as files.")
    message = filled(decoding_pb2.DecodingOptions(greedy=True), options)  # so that what is absent is left out
    if options.language is not None:
        message.languages.append(options.language)
    return message


def decoding_options_from_proto(message: decoding_pb2.DecodingOptions) -> DecodingOptions:
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


def limits_to_proto(limits: Limits) -> pb.Limits:
    return filled(pb.Limits(), limits)


def limits_from_proto(message: pb.Limits) -> Limits:
    return Limits(**values_in(message, Limits))


def vocabulary_to_proto(vocabulary: Vocabulary) -> pb.Vocabulary:
    return filled(pb.Vocabulary(), vocabulary)


def vocabulary_from_proto(message: pb.Vocabulary) -> Vocabulary:
    """Decode a vocabulary; every id it names must be one of its tokens."""
    values = values_in(message, Vocabulary) | {"own_language": message.own_language or None}
    vocabulary = Vocabulary(**values)
    largest = max(
        vocabulary.end_of_text,
        vocabulary.start_of_transcript,
        vocabulary.no_timestamps or 0,
        vocabulary.start_of_prev or 0,
        vocabulary.no_speech or 0,
        vocabulary.timestamp_begin - 1,  # a model without timestamps has it after its last token
        *vocabulary.languages.values(),
        *vocabulary.tasks.values(),
        *vocabulary.suppress,
        *vocabulary.begin_suppress,
    )
    if largest >= len(vocabulary):
        raise PairMismatch(f"The target's vocabulary names token {largest} but has {len(vocabulary)} tokens.")
    return vocabulary


def hint_to_proto(hint: TimedHint) -> decoding_pb2.Hint:
    return filled(decoding_pb2.Hint(), hint)


def hint_from_proto(message: decoding_pb2.Hint) -> TimedHint:
    """Raise ``InvalidRequest`` for a text that is too long, too late or not Unicode."""
    return check_hint(TimedHint(message.start_sample, message.text))


def statistics_to_proto(statistics: SpeculationStatistics) -> transcription_pb2.SpeculationStatistics:
    return filled(transcription_pb2.SpeculationStatistics(), statistics)


def statistics_from_proto(message: transcription_pb2.SpeculationStatistics) -> SpeculationStatistics:
    values = values_in(message, SpeculationStatistics)
    return SpeculationStatistics(**values | {"acceptance_histogram": list(message.acceptance_histogram)})
