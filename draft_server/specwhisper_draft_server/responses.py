"""Build a stream's responses from the updates of its session."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specwhisper.types import SAMPLE_RATE
from specwhisper.wire.codec import statistics_to_proto
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.replies import (
    duration,
    final_result,
    interim_results,
    speech_event,
    spoken_language,
)
from specwhisper_draft_server.resume_points import ResumePoints
from specwhisper_draft_server.sessions.session import Session
from specwhisper_draft_server.sessions.update import SessionUpdate


class StreamingResponses:
    """The responses of one stream.

    Parameters
    ----------
    describe_model : returns the models that write the text now.
    """

    def __init__(
        self,
        session: Session,
        config: pb.StreamingRecognitionConfig,
        describe_model: Callable[[], pb.ModelInfo],
    ) -> None:
        self._session = session
        self._config = config
        self._describe_model = describe_model
        self._resume_points = ResumePoints(session) if config.with_resume_points else None
        # As the client knows them:
        self._model: pb.ModelInfo | None = None
        self._interim: list[pb.SpeechRecognitionResult] = []

    def on_update(self, update: SessionUpdate) -> list[pb.StreamingRecognizeResponse]:
        """Return the responses for an update of the session.

        There are none if the client knows everything.
        """
        session = self._session
        responses = []
        if self._model is None:  # known only now that a target has taken the session
            self._model = self._describe_model()
            response = pb.StreamingRecognizeResponse(model=self._model)
            self._add_resume_point(response, has_finals=False)
            responses.append(response)
        responses += [speech_event(mark, self._interim) for mark in update.speech_events]
        finals = [final_result(segment, session.builder.language) for segment in update.segments]
        interim = interim_results(session.builder) if self._config.interim_results else []
        response = self._response([*finals, *interim])
        self._add_model(response)
        self._add_resume_point(response, has_finals=bool(finals))
        if self._config.with_statistics:
            self._add_statistics(response)
        is_news = (
            finals
            or interim != self._interim
            or response.HasField("resume_point")
            or response.HasField("model")
        )
        self._interim = interim
        if is_news:
            responses.append(response)
        return responses

    def last(self) -> pb.StreamingRecognizeResponse:
        """Return the response after which the stream ends."""
        response = self._response([])
        response.language.CopyFrom(spoken_language(self._session.builder))
        self._add_model(response)
        self._add_statistics(response)
        return response

    def _response(self, results: Iterable[pb.SpeechRecognitionResult]) -> pb.StreamingRecognizeResponse:
        received_s = self._session.builder.num_samples / SAMPLE_RATE
        return pb.StreamingRecognizeResponse(results=results, audio_received=duration(received_s))

    def _add_resume_point(self, response: pb.StreamingRecognizeResponse, *, has_finals: bool) -> None:
        """Add a resume point if one is due."""
        if self._resume_points is not None:
            point = self._resume_points.take(has_finals=has_finals)
            if point is not None:
                response.resume_point.CopyFrom(point)
                self._add_statistics(response)

    def _add_model(self, response: pb.StreamingRecognizeResponse) -> None:
        """Add the models if the client knows others."""
        before, self._model = self._model, self._describe_model()
        if self._model != before:
            response.model.CopyFrom(self._model)

    def _add_statistics(self, response: pb.StreamingRecognizeResponse) -> None:
        response.statistics.CopyFrom(statistics_to_proto(self._session.builder.statistics))
