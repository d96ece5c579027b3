"""Texts that the audio is believed to say."""

from __future__ import annotations

from specwhisper.transcription.hints.feed import check_hint
from specwhisper.types import TimedHint
from specwhisper.wire.v1 import decoding_pb2 as pb


def hint_to_proto(hint: TimedHint) -> pb.Hint:
    return pb.Hint(start_sample=hint.start_sample, text=hint.text)


def hint_from_proto(message: pb.Hint) -> TimedHint:
    """Decode a text that the audio is believed to say.

    Raises
    ------
    InvalidRequest : if it is too long, no Unicode, or too late.
    """
    return check_hint(TimedHint(message.start_sample, message.text))
