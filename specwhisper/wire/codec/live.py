"""Convert the options of live audio."""

from __future__ import annotations

from dataclasses import fields

from specwhisper.errors import InvalidRequest
from specwhisper.live import EndpointingOptions, FinalPiece, LiveOptions, LivePosition
from specwhisper.wire.v1 import decoding_pb2, transcription_pb2, verification_pb2

DEFAULT = LiveOptions()
MAX_FINAL_TOKENS = 1024  # more than any window holds


def live_options_to_proto(options: LiveOptions) -> decoding_pb2.LiveOptions:
    """Encode the options of live decoding."""
    return decoding_pb2.LiveOptions(
        step_ms=options.step_ms,
        confirm_every_ms=options.confirm_every_ms,
    )


def live_position_to_proto(position: LivePosition) -> verification_pb2.LivePosition:
    """Encode the position where a live session continues."""
    return verification_pb2.LivePosition(
        next_sample=position.next_sample,
        num_utterances=position.num_utterances,
        is_speech=position.is_speech,
        pieces=[
            verification_pb2.FinalPiece(start_sample=piece.start_sample, tokens=piece.tokens)
            for piece in position.pieces
        ],
        language=position.language or "",
    )


def live_options_from_proto(message: decoding_pb2.LiveOptions) -> LiveOptions:
    """Decode the options of live decoding."""
    return LiveOptions(
        step_ms=message.step_ms if message.HasField("step_ms") else DEFAULT.step_ms,
        confirm_every_ms=message.confirm_every_ms if message.HasField("confirm_every_ms") else None,
    )


def live_position_from_proto(message: verification_pb2.LivePosition) -> LivePosition:
    """Decode the position where a live session continues."""
    num_tokens = sum(len(piece.tokens) for piece in message.pieces)
    if num_tokens > MAX_FINAL_TOKENS:
        raise InvalidRequest(f"A position has {num_tokens} final tokens: at most {MAX_FINAL_TOKENS} fit.")
    return LivePosition(
        next_sample=message.next_sample,
        num_utterances=message.num_utterances,
        is_speech=message.is_speech,
        pieces=tuple(FinalPiece(piece.start_sample, tuple(piece.tokens)) for piece in message.pieces),
        language=message.language or None,
    )


def endpointing_to_proto(options: EndpointingOptions | None) -> transcription_pb2.Endpointing:
    """Encode the options of endpointing; ``None`` counts all audio as speech."""
    if options is None:
        return transcription_pb2.Endpointing(disabled=True)
    return transcription_pb2.Endpointing(
        threshold=options.threshold,
        prefix_padding_ms=options.prefix_padding_ms,
        silence_duration_ms=options.silence_duration_ms,
        short_silence_ms=options.short_silence_ms,
        min_utterance_ms=options.min_utterance_ms,
        max_piece_ms=options.max_piece_ms,
        min_speech_ms=options.min_speech_ms,
    )


def endpointing_from_proto(message: transcription_pb2.Endpointing) -> EndpointingOptions | None:
    """Decode the options of endpointing; ``None`` counts all audio as speech."""
    if message.disabled:
        return None
    names = [field.name for field in fields(EndpointingOptions)]
    return EndpointingOptions(**{name: getattr(message, name) for name in names if message.HasField(name)})
