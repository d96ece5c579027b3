"""Convert resume points, whose state clients only keep and send back."""

from __future__ import annotations

from dataclasses import replace

from google.protobuf.message import DecodeError

from specwhisper.errors import InvalidRequest, PairMismatch
from specwhisper.live import FinalPiece, LivePosition, check_sample
from specwhisper.transcription.resume_point import ResumePoint, audio_needed_from
from specwhisper.wire import PROTOCOL_VERSION
from specwhisper.wire.codec.fields import filled, values_in
from specwhisper.wire.codec.messages import resume_from_proto, resume_to_proto
from specwhisper.wire.v1 import resume_point_pb2, verification_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb

MAX_FINAL_TOKENS = 1024  # more than any window holds


def resume_point_to_proto(progress: ResumePoint | LivePosition, weights_digest: str) -> pb.ResumePoint:
    """Encode where a stream continues, and the digest of the weights that wrote its text."""
    state = resume_point_pb2.ResumePointState(
        protocol_version=PROTOCOL_VERSION, weights_digest=weights_digest
    )
    if isinstance(progress, LivePosition):
        state.live.CopyFrom(live_position_to_proto(progress))
        start_sample, num_ends = progress.start_sample, progress.num_ends
    else:
        filled(state.recording, progress)
        state.recording.resume.CopyFrom(resume_to_proto(progress.resume))
        start_sample, num_ends = audio_needed_from(progress.resume.window.start_sample), 0
    return pb.ResumePoint(state=state.SerializeToString(), start_sample=start_sample, num_ends=num_ends)


def resume_point_weights(message: pb.ResumePoint) -> str:
    """Return the digest of the weights that wrote a stream's text.

    Raise :class:`InvalidRequest` if its state cannot be read.
    """
    return _read(message).weights_digest


def resume_point_from_proto(
    message: pb.ResumePoint, weights_digest: str, *, vocabulary_size: int
) -> ResumePoint | LivePosition:
    """Decode what a client sent back.

    Raises
    ------
    PairMismatch : for a stream of other weights, or another protocol.
    InvalidRequest : if it cannot be read.
    """
    state = _read(message)
    if state.protocol_version != PROTOCOL_VERSION:
        raise PairMismatch(
            f"The resume point is of protocol {state.protocol_version}, this server speaks "
            f"{PROTOCOL_VERSION}: install the same version on all draft servers."
        )
    if state.weights_digest != weights_digest:
        raise PairMismatch(
            "The stream was begun on other weights than those of the target here: keep a target with "
            "those until their sessions have ended."
        )
    if state.WhichOneof("progress") == "live":
        return _live_position(message, live_position_from_proto(state.live))
    resume = resume_from_proto(state.recording.resume, vocabulary_size=vocabulary_size)
    if len(resume.log_probs) != len(resume.committed):
        raise InvalidRequest(
            f"The resume point has {len(resume.committed)} tokens, but {len(resume.log_probs)} probabilities."
        )
    if message.start_sample > (needed := audio_needed_from(resume.window.start_sample)):
        raise InvalidRequest(
            f"The recording continues with sample {needed}, not {message.start_sample}: send the "
            "resume point as it was received."
        )
    return ResumePoint(resume, **values_in(state.recording, ResumePoint))


def _live_position(message: pb.ResumePoint, position: LivePosition) -> LivePosition:
    """Return the position at which the client's audio begins: later, if it has lost some."""
    check_sample("start_sample", message.start_sample)
    if message.start_sample > position.start_sample:
        position = LivePosition(max(message.start_sample, position.next_sample), position.num_utterances)
    return replace(position, num_ends=message.num_ends)


def _read(message: pb.ResumePoint) -> resume_point_pb2.ResumePointState:
    try:
        state = resume_point_pb2.ResumePointState.FromString(message.state)
    except DecodeError as error:
        raise InvalidRequest("The resume point cannot be read: send the last one of the stream.") from error
    if not message.state:
        raise InvalidRequest("The resume point has no state: send the last one of the stream as it is.")
    return state


def live_position_to_proto(position: LivePosition) -> verification_pb2.LivePosition:
    return filled(verification_pb2.LivePosition(), position)


def live_position_from_proto(message: verification_pb2.LivePosition) -> LivePosition:
    num_tokens = sum(len(piece.tokens) for piece in message.pieces)
    if num_tokens > MAX_FINAL_TOKENS:
        raise InvalidRequest(f"A position has {num_tokens} final tokens: at most {MAX_FINAL_TOKENS} fit.")
    values = values_in(message, LivePosition)
    pieces = tuple(FinalPiece(**values_in(piece, FinalPiece)) for piece in message.pieces)
    return LivePosition(**values | {"pieces": pieces, "language": message.language or None})
