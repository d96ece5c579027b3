"""Where a recording would go on at another draft server: told to clients, and read when they come with it."""

from __future__ import annotations

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.resumption import Checkpoint
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import SAMPLE_RATE
from specwhisper.wire import codec
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.sessions.resuming import audio_needed_from
from specwhisper_draft_server.sessions.session import Session

TOLD_TOKENS = 16  # between two checkpoints; another session may have to write so many again


class ResumePoints:
    """Puts checkpoints into what a client is told: behind final text, and now and then."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._told = 0

    def add(self, update: pb.StreamingRecognizeResponse, *, has_finals: bool) -> None:
        """Add one where it is due; together with the text that it stands behind, so that none comes twice."""
        num_committed = self._session.builder.statistics.num_committed
        if not has_finals and num_committed - self._told < TOLD_TOKENS:
            return
        checkpoint = self._session.checkpoint()
        if checkpoint is None:
            return
        self._told = num_committed
        update.checkpoint.state = codec.checkpoint_to_bytes(checkpoint, self._session.target.weights_digest)
        update.checkpoint.start_sample = audio_needed_from(checkpoint.resume.window.start_sample)


def read_checkpoint(config: pb.StreamingRecognitionConfig, target: TargetDescription) -> Checkpoint | None:
    """Read where a client wants its recording to go on; ``None`` where it begins."""
    if not config.checkpoint:
        return None
    audio = config.config
    if audio.sample_rate_hertz != SAMPLE_RATE or audio.audio_channel_count > 1:
        raise InvalidRequest(
            f"A recording goes on in mono at {SAMPLE_RATE} Hz: its samples are counted in that."
        )
    return codec.checkpoint_from_bytes(
        config.checkpoint, target.weights_digest, vocabulary_size=len(target.vocabulary)
    )
