"""Convert a session's terms, limits and vocabulary, its hints, and its statistics."""

from __future__ import annotations

from dataclasses import asdict, fields

from specwhisper.errors import PairMismatch
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.hints import check_hint
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Limits, TimedHint
from specwhisper.wire.v1 import decoding_pb2, transcription_pb2
from specwhisper.wire.v1 import verification_pb2 as pb


def limits_to_proto(limits: Limits) -> pb.Limits:
    return pb.Limits(
        max_block_tokens=limits.max_block_tokens,
        max_ahead_tokens=limits.max_ahead_tokens,
        max_ahead_samples=limits.max_ahead_samples,
    )


def limits_from_proto(message: pb.Limits) -> Limits:
    return Limits(
        max_block_tokens=message.max_block_tokens,
        max_ahead_tokens=message.max_ahead_tokens,
        max_ahead_samples=message.max_ahead_samples,
    )


def vocabulary_to_proto(vocabulary: Vocabulary) -> pb.Vocabulary:
    return pb.Vocabulary(
        tokens=vocabulary.tokens,
        end_of_text=vocabulary.end_of_text,
        start_of_transcript=vocabulary.start_of_transcript,
        no_timestamps=vocabulary.no_timestamps,
        timestamp_begin=vocabulary.timestamp_begin,
        languages=vocabulary.languages,
        tasks=vocabulary.tasks,
        suppress=vocabulary.suppress,
        begin_suppress=vocabulary.begin_suppress,
        max_initial_timestamp=vocabulary.max_initial_timestamp,
        max_length=vocabulary.max_length,
        start_of_prev=vocabulary.start_of_prev,
        no_speech=vocabulary.no_speech,
        own_language=vocabulary.own_language or "",
    )


def vocabulary_from_proto(message: pb.Vocabulary) -> Vocabulary:
    """Decode a vocabulary; every id it names must be one of its tokens."""
    has_limit = message.HasField("max_initial_timestamp")
    vocabulary = Vocabulary(
        tokens=tuple(message.tokens),
        end_of_text=message.end_of_text,
        start_of_transcript=message.start_of_transcript,
        no_timestamps=message.no_timestamps if message.HasField("no_timestamps") else None,
        timestamp_begin=message.timestamp_begin,
        languages=dict(message.languages),
        tasks=dict(message.tasks),
        suppress=tuple(message.suppress),
        begin_suppress=tuple(message.begin_suppress),
        max_initial_timestamp=message.max_initial_timestamp if has_limit else None,
        max_length=message.max_length,
        start_of_prev=message.start_of_prev if message.HasField("start_of_prev") else None,
        no_speech=message.no_speech if message.HasField("no_speech") else None,
        own_language=message.own_language or None,
    )
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
    return decoding_pb2.Hint(start_sample=hint.start_sample, text=hint.text)


def hint_from_proto(message: decoding_pb2.Hint) -> TimedHint:
    """Raise ``InvalidRequest`` for a text that is too long, too late or not Unicode."""
    return check_hint(TimedHint(message.start_sample, message.text))


def statistics_to_proto(statistics: SpeculationStatistics) -> transcription_pb2.SpeculationStatistics:
    return transcription_pb2.SpeculationStatistics(**asdict(statistics))


def statistics_from_proto(message: transcription_pb2.SpeculationStatistics) -> SpeculationStatistics:
    values = {field.name: getattr(message, field.name) for field in fields(SpeculationStatistics)}
    values["acceptance_histogram"] = list(message.acceptance_histogram)
    return SpeculationStatistics(**values)
