"""Convert resume points to bytes that clients keep and send back."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from specwhisper.errors import InvalidRequest, PairMismatch
from specwhisper.transcription.resume_point import ResumePoint
from specwhisper.wire import PROTOCOL_VERSION
from specwhisper.wire.codec.messages import resume_from_proto, resume_to_proto
from specwhisper.wire.v1 import resume_point_pb2 as pb


def resume_point_to_bytes(resume_point: ResumePoint, weights_digest: str) -> bytes:
    """Encode a resume point and the digest of the weights of its recording."""
    return pb.ResumePointState(
        protocol_version=PROTOCOL_VERSION,
        weights_digest=weights_digest,
        resume=resume_to_proto(resume_point.resume),
        is_sent=resume_point.is_sent,
        no_speech_prob=resume_point.no_speech_prob,
        language_probs=resume_point.language_probs,
    ).SerializeToString()


def resume_point_weights(state: bytes) -> str:
    """Return the digest of the weights on which a recording was begun.

    Raises
    ------
    InvalidRequest : if the bytes cannot be read.
    """
    return _read(state).weights_digest


def resume_point_from_bytes(state: bytes, weights_digest: str, *, vocabulary_size: int) -> ResumePoint:
    """Decode the bytes that a client sent back.

    Raises
    ------
    PairMismatch : for a recording of other weights, or another protocol.
    InvalidRequest : if the bytes cannot be read.
    """
    message = _read(state)
    if message.protocol_version != PROTOCOL_VERSION:
        raise PairMismatch(
            f"The resume point is of protocol {message.protocol_version}, this server speaks "
            f"{PROTOCOL_VERSION}: install the same version on all draft servers."
        )
    if message.weights_digest != weights_digest:
        raise PairMismatch(
            "The recording was begun on other weights than those of the target here: keep a target with "
            "those until their sessions have ended."
        )
    resume = resume_from_proto(message.resume, vocabulary_size=vocabulary_size)
    if len(resume.log_probs) != len(resume.committed):
        raise InvalidRequest(
            f"The resume point has {len(resume.committed)} tokens, but {len(resume.log_probs)} probabilities."
        )
    return ResumePoint(
        resume,
        message.is_sent,
        message.no_speech_prob if message.HasField("no_speech_prob") else None,
        dict(message.language_probs),
    )


def _read(state: bytes) -> pb.ResumePointState:
    try:
        return pb.ResumePointState.FromString(state)
    except DecodeError as error:
        raise InvalidRequest("The resume point cannot be read: send the last one of the stream.") from error
