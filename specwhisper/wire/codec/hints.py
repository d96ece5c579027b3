"""Texts that the audio is believed to say."""

from __future__ import annotations

from specwhisper.transcription.hints.feed import check_hint_text, hint_at
from specwhisper.types import SAMPLE_RATE, TimedHint
from specwhisper.wire.v1 import transcription_pb2
from specwhisper.wire.v1 import verification_pb2 as pb

NS_PER_SAMPLE = 1_000_000_000 // SAMPLE_RATE


def hint_to_proto(hint: TimedHint) -> pb.Hint:
    """Encode a text that the audio is believed to say."""
    return pb.Hint(start_sample=hint.start_sample, text=hint.text)


def recognition_hint_to_proto(hint: TimedHint) -> transcription_pb2.RecognitionHint:
    """Encode a client's hint."""
    message = transcription_pb2.RecognitionHint(text=hint.text)
    message.start.FromNanoseconds(hint.start_sample * NS_PER_SAMPLE)
    return message


def recognition_hint_from_proto(message: transcription_pb2.RecognitionHint) -> TimedHint:
    """Decode a client's hint.

    Raises
    ------
    InvalidRequest : see :func:`hint_at`.
    """
    return hint_at(message.start.ToNanoseconds() / 1e9, message.text)


def hint_from_proto(message: pb.Hint) -> TimedHint:
    """Decode a text that the audio is believed to say.

    Raises
    ------
    InvalidRequest : if it is too long, or no Unicode.
    """
    check_hint_text(message.text)
    return TimedHint(message.start_sample, message.text)
