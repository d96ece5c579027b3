"""Resume points in the contract with clients.

They hold the place where another stream would continue a recording.
"""

from __future__ import annotations

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.resume_point import ResumePoint, audio_needed_from
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import SAMPLE_RATE
from specwhisper.wire import codec
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.sessions.session import Session

INTERVAL_TOKENS = 16  # between two resume points: a stream that continues may decode as many again


class ResumePoints:
    """Resume points that are added to responses.

    They come with final text, and every :data:`INTERVAL_TOKENS`.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._num_sent_tokens = 0  # committed at the last resume point

    def add(self, response: pb.StreamingRecognizeResponse, *, has_finals: bool) -> None:
        """Add a resume point if one is due.

        It is in the same response as the text before it, so that no text is sent twice.
        """
        num_committed = self._session.builder.statistics.num_committed
        if not has_finals and num_committed - self._num_sent_tokens < INTERVAL_TOKENS:
            return
        resume_point = self._session.resume_point()
        if resume_point is None:
            return
        self._num_sent_tokens = num_committed
        response.resume_point.state = codec.resume_point_to_bytes(
            resume_point, self._session.target.weights_digest
        )
        response.resume_point.start_sample = audio_needed_from(resume_point.resume.window.start_sample)


def read_resume_point(config: pb.StreamingRecognitionConfig, target: TargetDescription) -> ResumePoint | None:
    """Return where a client's recording continues; ``None`` if at its beginning."""
    if not config.resume_point:
        return None
    audio = config.config
    if audio.sample_rate_hertz != SAMPLE_RATE or audio.audio_channel_count > 1:
        raise InvalidRequest(
            f"A recording continues from a resume point in mono at {SAMPLE_RATE} Hz: convert its audio."
        )
    return codec.resume_point_from_bytes(
        config.resume_point, target.weights_digest, vocabulary_size=len(target.vocabulary)
    )
