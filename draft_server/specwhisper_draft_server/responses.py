"""Build a stream's responses from the updates of its session; heartbeats are sent between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing

from google.protobuf.duration_pb2 import Duration

from specwhisper.errors import InvalidRequest
from specwhisper.languages import language_name
from specwhisper.live import LivePosition
from specwhisper.tasks import NextItem
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.resume_point import ResumePoint
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import NS_PER_S, SAMPLE_RATE, Segment, VoiceEvent, VoiceMark
from specwhisper.wire import HEARTBEAT_S, SETTLED, STABLE, TENTATIVE, VERIFIED, codec, is_verified
from specwhisper.wire.codec import statistics_to_proto
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.session import INTERVAL_SAMPLES, Session, SessionUpdate
from specwhisper_draft_server.transcriber import TargetDescription

INTERVAL_TOKENS = 16  # between a recording's resume points; a stream that continues may decode as many again

Transcript = TranscriptBuilder | LiveTranscript


class StreamingResponses:
    """The responses of one stream.

    ``describe_model``: returns the models that write the text now.
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
        # At the last resume point: a recording's committed tokens, or where live audio was silent or final.
        self._resumes_from: int | None = None
        # As the client has received them:
        self._model: pb.ModelInfo | None = None
        self._interim: list[pb.SpeechRecognitionResult] = []

    def on_update(self, update: SessionUpdate) -> list[pb.StreamingRecognizeResponse]:
        """Return the responses for an update of the session.

        There are none if the client has been sent everything.
        """
        session = self._session
        responses = [speech_event(mark, self._interim) for mark in update.speech_events]
        finals = [final_result(segment, session.builder.language) for segment in update.segments]
        interim = interim_results(session.builder) if self._config.interim_results else []
        response = self._response([*finals, *interim])
        self._add_model(response)
        point = self._resume_point(has_finals=bool(finals)) if self._config.with_resume_points else None
        if point is not None:
            response.resume_point.CopyFrom(point)
        if point is not None or self._config.with_statistics:
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
        response = self._response([])
        response.language.CopyFrom(spoken_language(self._session.builder))
        self._add_model(response)
        self._add_statistics(response)
        return response

    def _response(self, results: Iterable[pb.SpeechRecognitionResult]) -> pb.StreamingRecognizeResponse:
        received_s = self._session.builder.num_samples / SAMPLE_RATE
        return pb.StreamingRecognizeResponse(results=results, audio_received=duration(received_s))

    def _resume_point(self, *, has_finals: bool) -> pb.ResumePoint | None:
        """Return where the stream continues, with all final text and at intervals.

        Both are in one response, so that no text is sent twice.
        """
        point = self._session.resume_point()
        if isinstance(point, LivePosition):
            now, before = point.next_sample, self._resumes_from
            is_due = before is None or now // INTERVAL_SAMPLES > before // INTERVAL_SAMPLES
        else:
            now = self._session.builder.statistics.num_committed
            is_due = now - (self._resumes_from or 0) >= INTERVAL_TOKENS
        if point is None or not (has_finals or is_due):
            return None
        self._resumes_from = now
        return codec.resume_point_to_proto(point, self._session.target.weights_digest)

    def _add_model(self, response: pb.StreamingRecognizeResponse) -> None:
        before, self._model = self._model, self._describe_model()
        if self._model != before:
            response.model.CopyFrom(self._model)

    def _add_statistics(self, response: pb.StreamingRecognizeResponse) -> None:
        response.statistics.CopyFrom(statistics_to_proto(self._session.builder.statistics))


def read_resume_point(
    config: pb.StreamingRecognitionConfig, target: TargetDescription
) -> ResumePoint | LivePosition | None:
    """Return where a client's stream continues; ``None`` at its beginning."""
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


def final_result(segment: Segment, language: str) -> pb.SpeechRecognitionResult:
    return pb.SpeechRecognitionResult(
        alternatives=[
            pb.SpeechRecognitionAlternative(
                transcript=segment.text,
                confidence=segment.confidence,
                words=[
                    pb.WordInfo(
                        start_offset=duration(word.start_s),
                        end_offset=duration(word.end_s),
                        word=word.text,
                        confidence=word.confidence,
                    )
                    for word in segment.words
                ],
                tokens=segment.tokens,
                avg_logprob=segment.avg_logprob,
                compression_ratio=segment.compression_ratio,
                temperature=segment.temperature,
                no_speech_prob=segment.no_speech_prob,
                seek=segment.seek,
            )
        ],
        is_final=True,
        stability=1.0,
        start_offset=duration(segment.start_s),
        end_offset=duration(segment.end_s),
        language_code=segment.language or language,
        utterance=segment.utterance,
        is_utterance_end=segment.is_utterance_end,
    )


def interim_results(transcript: Transcript) -> list[pb.SpeechRecognitionResult]:
    """Return the results for text that isn't final, the most stable first."""
    start, end = map(duration, transcript.span_s)
    settled = transcript.settled_text
    texts = (
        (settled, SETTLED),
        (transcript.verified_text.removeprefix(settled), VERIFIED),
        (transcript.stable_text, STABLE),
        (transcript.tentative_text, TENTATIVE),
    )
    return [
        pb.SpeechRecognitionResult(
            alternatives=[pb.SpeechRecognitionAlternative(transcript=text)],
            stability=stability,
            start_offset=start,
            end_offset=end,
            language_code=transcript.language,
            is_unverified=transcript.is_unverified and not is_verified(stability),
        )
        for text, stability in texts
        if text
    ]


def spoken_language(transcript: Transcript) -> pb.SpokenLanguage:
    return pb.SpokenLanguage(
        code=transcript.language,
        name=language_name(transcript.language),
        probabilities=transcript.language_probs,
    )


def speech_event(
    mark: VoiceMark, interim: Iterable[pb.SpeechRecognitionResult]
) -> pb.StreamingRecognizeResponse:
    """Return the response that reports the begin or end of an utterance.

    The response has all open text, ``interim``.
    """
    begins = mark.event is VoiceEvent.BEGIN
    return pb.StreamingRecognizeResponse(
        results=interim,
        speech_event=pb.SPEECH_EVENT_BEGIN if begins else pb.SPEECH_EVENT_END,
        speech_event_offset=duration(mark.sample / SAMPLE_RATE),
    )


def duration(seconds: float) -> Duration:
    return Duration(seconds=round(seconds * NS_PER_S) // NS_PER_S, nanos=round(seconds * NS_PER_S) % NS_PER_S)


class Pings:
    """The pings in a client's requests; only the newest needs an answer.

    Answers show how much of its audio has arrived.
    """

    def __init__(self) -> None:
        self._newest = 0
        self._has_new = asyncio.Event()

    async def noted(
        self, requests: AsyncIterator[pb.StreamingRecognizeRequest]
    ) -> AsyncGenerator[pb.StreamingRecognizeRequest]:
        """Yield the requests, except those that are only a ping."""
        async for request in requests:
            if request.ping:
                self._newest = request.ping
                self._has_new.set()
            if not request.ping or request.WhichOneof("streaming_request") is not None:
                yield request

    @property
    def has_new(self) -> bool:
        """Whether a ping has no answer."""
        return self._has_new.is_set()

    async def wait(self) -> None:
        await self._has_new.wait()

    def take(self) -> pb.StreamingRecognizeResponse:
        """Return the answer to the newest ping, or a heartbeat if that was answered."""
        ping = self._newest if self.has_new else 0
        self._has_new.clear()
        return pb.StreamingRecognizeResponse(ping=ping, heartbeat=not ping)


async def with_heartbeats(
    responses: AsyncGenerator[pb.StreamingRecognizeResponse], pings: Pings
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Yield responses, with answers to pings and heartbeats in between.

    Heartbeats show that the event loop runs; gRPC's own threads answer gRPC's pings even if it hangs.

    The first ping is answered before anything else. A heartbeat is sent after :data:`HEARTBEAT_S` without a
    response. None is queued while the client hasn't read the last response.
    """
    if pings.has_new:
        yield pings.take()
    waiting = asyncio.ensure_future(pings.wait())
    try:
        async with aclosing(responses):
            while True:
                async with NextItem(responses) as pending:
                    while not await pending.wait(waiting, timeout_s=HEARTBEAT_S):
                        yield pings.take()
                        if waiting.done():
                            waiting = asyncio.ensure_future(pings.wait())
                    if (response := pending.item) is None:
                        return
                yield response
    finally:
        waiting.cancel()
