"""Convert the position where live audio continues."""

from __future__ import annotations

from specwhisper.errors import InvalidRequest
from specwhisper.live import FinalPiece, LivePosition
from specwhisper.wire.v1 import verification_pb2

MAX_FINAL_TOKENS = 1024  # more than any window holds


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
