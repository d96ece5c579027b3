"""Resume points in the contract with clients: where another stream would continue."""

from __future__ import annotations

from specwhisper.errors import InvalidRequest
from specwhisper.live import LivePosition
from specwhisper.transcription.resume_point import ResumePoint
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import SAMPLE_RATE
from specwhisper.wire import codec
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.sessions.session import INTERVAL_SAMPLES, Session

INTERVAL_TOKENS = 16  # between two of a recording: a stream that continues may decode as many again


class ResumePoints:
    """The resume points of a stream.

    One comes with all final text, in the same response, so that no text is sent twice.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        # At the last resume point: tokens committed, and how far live audio had been silent or final.
        self._num_tokens = 0
        self._next_sample: int | None = None

    def take(self, *, has_finals: bool) -> pb.ResumePoint | None:
        """Return the resume point for a response; ``None`` if none is due."""
        progress = self._progress(has_finals)
        if progress is None:
            return None
        return codec.resume_point_to_proto(progress, self._session.target.weights_digest)

    def _progress(self, has_finals: bool) -> ResumePoint | LivePosition | None:
        if (position := self._session.position) is not None:
            before, now = self._next_sample, position.next_sample
            is_due = has_finals or before is None or now // INTERVAL_SAMPLES > before // INTERVAL_SAMPLES
            if not is_due:
                return None
            self._next_sample = now
            return position
        num_tokens = self._session.builder.statistics.num_committed
        if not has_finals and num_tokens - self._num_tokens < INTERVAL_TOKENS:
            return None
        if (resume_point := self._session.resume_point()) is not None:
            self._num_tokens = num_tokens
        return resume_point


def read_resume_point(
    config: pb.StreamingRecognitionConfig, target: TargetDescription
) -> ResumePoint | LivePosition | None:
    """Return where a client's stream continues; ``None`` if at its beginning."""
    if not config.HasField("resume_point"):
        return None
    audio = config.config
    if audio.sample_rate_hertz != SAMPLE_RATE or audio.audio_channel_count > 1:
        raise InvalidRequest(
            f"A stream continues from a resume point in mono at {SAMPLE_RATE} Hz: convert its audio."
        )
    progress = codec.resume_point_from_proto(
        config.resume_point, target.weights_digest, vocabulary_size=len(target.vocabulary)
    )
    if isinstance(progress, LivePosition) != audio.decoding.HasField("live"):
        raise InvalidRequest(
            "The resume point is of another kind of stream: continue live audio with decoding.live, and a "
            "recording without."
        )
    return progress
