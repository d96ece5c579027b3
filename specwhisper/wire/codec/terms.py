"""Convert the terms that a session begins with: limits and vocabulary."""

from __future__ import annotations

from specwhisper.errors import PairMismatch
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Limits
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
