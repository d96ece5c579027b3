"""Convert a session's terms, limits and vocabulary, its hints, and its statistics."""

from __future__ import annotations

from specwhisper.errors import PairMismatch
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.hints import check_hint
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Limits, TimedHint
from specwhisper.wire.codec.fields import filled, values_in
from specwhisper.wire.v1 import decoding_pb2, transcription_pb2
from specwhisper.wire.v1 import verification_pb2 as pb


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
