"""The gRPC service of the draft server: transcribe recordings and live audio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from specwhisper import __version__
from specwhisper.audio.damage import Warnings
from specwhisper.audio.recording import MEL_BINS
from specwhisper.audio.source import AudioSource
from specwhisper.audio.turns import decoding_for
from specwhisper.errors import (
    GONE,
    InvalidRequest,
    PairMismatch,
    ServerFull,
    SpecWhisperError,
)
from specwhisper.observe.current_call import counted_as
from specwhisper.rpc.calls import admitted_by
from specwhisper.rpc.failover import Failover
from specwhisper.rpc.session_limiter import SessionLimiter
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper.wire import CLIENT_PROTOCOL_VERSION, codec
from specwhisper.wire.codec import statistics_to_proto
from specwhisper.wire.status import was_there
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2_grpc
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.draft_source import DraftNotPlaced, DraftSource
from specwhisper_draft_server.metrics import DraftMetrics, SessionMetrics
from specwhisper_draft_server.parity_check import ParityChecker
from specwhisper_draft_server.requests import (
    WithIdleTimeout,
    canonical_stream,
    decode_recording,
    first_of,
    read_audio,
    read_request,
    read_streaming_request,
    with_observers,
    without_first,
)
from specwhisper_draft_server.responses import (
    Pings,
    StreamingResponses,
    duration,
    final_result,
    read_resume_point,
    spoken_language,
    with_heartbeats,
)
from specwhisper_draft_server.session import Session, SessionRequest
from specwhisper_draft_server.transcriber import Requirements, TargetDescription, Transcriber

logger = logging.getLogger(__name__)

FIRST_TARGET_S = 2.0  # for which a starting server looks for a target


class TranscriptionService(transcription_pb2_grpc.TranscriptionServicer):
    """Serves clients with one draft model and its targets."""

    def __init__(
        self,
        config: DraftConfig,
        transcriber: Transcriber,
        drafting: DraftSource | None,
        metrics: DraftMetrics,
        parity: ParityChecker,
    ) -> None:
        self.metrics = metrics
        self._config = config
        self._transcriber = transcriber
        self._drafting = drafting
        self._parity = parity
        self._limiter = SessionLimiter("The draft server", config.max_sessions, config.max_sessions_per_token)

    @property
    def num_sessions(self) -> int:
        return self._limiter.num_sessions

    @property
    def num_free_sessions(self) -> int:
        """Number of sessions that may still open, regardless of callers' own limits."""
        return max(0, self._limiter.max_sessions - self._limiter.num_sessions)

    @property
    def idle_timeout_s(self) -> float:
        return self._config.idle_timeout_s

    async def prepare(self) -> None:
        placement = self._drafting.placement if self._drafting else None
        if placement is None:
            return
        try:
            async with asyncio.timeout(FIRST_TARGET_S):
                target = await self._transcriber.describe(placement.requirements())
            async with asyncio.timeout(self._config.draft_timeout_s):
                await placement.done_for(target)
        except (PairMismatch, InvalidRequest) as error:
            logger.warning("not paired yet", extra={"error": str(error)})
        except (SpecWhisperError, TimeoutError, DraftNotPlaced) as error:
            logger.info("not paired yet", extra={"error": str(error) or "no target has answered in time"})

    async def check_health(self) -> None:
        """Return once the engines of this process have answered; raise if one hangs."""
        if self._drafting is not None:
            self._drafting.watchdog.check()
        await self._transcriber.check_health()

    async def GetModel(self, request: pb.GetModelRequest, context: Any) -> pb.GetModelResponse:
        target = await self._transcriber.describe()
        return pb.GetModelResponse(
            model=self._model_info(target, self._config.length(self._config.mode, None)),
            languages=sorted(target.vocabulary.languages) or ["en"],
            max_message_bytes=self._config.max_message_bytes,
            max_sessions=self._config.max_sessions,
            software_version=__version__,
            log_mel_max_bins=sorted(self._mel_bins(target)),
            protocol_version=CLIENT_PROTOCOL_VERSION,
            allows_latency_injection=self._config.allow_latency_injection,
        )

    def admit(self) -> AbstractContextManager[None]:
        """Count a session of this call's caller while the context lasts.

        Raise :class:`ServerFull` if there are too many.
        """
        self.check_room()
        decoding_for.set(counted_as())
        return self._limiter.admit(counted_as())

    def check_room(self) -> None:
        """Raise :class:`ServerFull` if the caller may not open another session.

        It is called before a request is read, since reading takes longer than the rest of a refusal. So
        metrics count the refusal for the server's default mode.
        """
        try:
            self._limiter.check(counted_as())
        except ServerFull as error:
            self.metrics.count_session(self._config.mode, error)
            raise

    @admitted_by(admit)
    async def Recognize(self, request: pb.RecognizeRequest, context: Any) -> pb.RecognizeResponse:
        return await self.recognize(request.config, request.audio)

    async def recognize(self, config: pb.RecognitionConfig, audio: bytes) -> pb.RecognizeResponse:
        request = read_request(config, self._config, self._drafting)
        if request.options.live is not None:
            raise InvalidRequest("A recording that is sent whole is not live: leave decoding.live out.")
        with self.metrics.session(request.length.mode):
            target = await self._target_for(request)
            warnings = Warnings(is_strict=request.options.strict)
            source = await AudioSource.open(
                partial(decode_recording, config, audio, self._config.max_audio_s, warnings)
            )
            if not source.fits_one_window:
                maxima = await source.log_mel_max(self._mel_bins(target), request.options.padding)
                request = replace(request, options=replace(request.options, log_mel_max=maxima))
            session = self._session(request, target)
            response = pb.RecognizeResponse()
            measured = SessionMetrics(self.metrics, session)
            with measured.counted(), self._parity.kept(session, request) as keep:
                pcm = with_observers(source.pieces(), measured.on_audio, keep)
                async with aclosing(session.run(pcm)) as updates:
                    async for update in updates:
                        measured.on_update(update)
                        response.results.extend(
                            final_result(segment, session.builder.language) for segment in update.segments
                        )
        response.model.CopyFrom(self._model_of(session, request))
        response.language.CopyFrom(spoken_language(session.builder))
        response.audio_duration.CopyFrom(duration(session.builder.num_samples / SAMPLE_RATE))
        response.statistics.CopyFrom(statistics_to_proto(session.builder.statistics))
        response.warnings.extend(warnings.sentences)
        return response

    async def StreamingRecognize(
        self, requests: AsyncIterator[pb.StreamingRecognizeRequest], context: Any
    ) -> AsyncIterator[pb.StreamingRecognizeResponse]:
        self.check_room()
        timed = WithIdleTimeout(requests, self.idle_timeout_s)
        with timed.error_at_end():
            pings = Pings()
            messages = pings.noted(aiter(timed))
            config = (await first_of(messages)).streaming_config
            responses = self.transcribe(config, messages)
            if config.with_heartbeats:
                responses = with_heartbeats(responses, pings)
            async with aclosing(responses):
                async for response in responses:
                    yield response

    async def transcribe(
        self, config: pb.StreamingRecognitionConfig, requests: AsyncIterator[pb.StreamingRecognizeRequest]
    ) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
        """Run the session of a stream, whose first message is ``config``; yield its responses."""
        request = read_streaming_request(config, self._config, self._drafting)
        audio = canonical_stream(config.config)
        with self.metrics.session(request.length.mode), self._limiter.admit(counted_as()):
            session = await self._streaming_session(config, request)
            responses = StreamingResponses(session, config, partial(self._model_of, session, request))
            measured = SessionMetrics(
                self.metrics, session, session.builder.num_samples if session.is_live else 0
            )
            recording = None if session.is_live or config.HasField("resume_point") else session
            with measured.counted(), self._parity.kept(recording, request) as keep:
                # A client may send more of another session's audio than is needed.
                num_known = session.builder.num_samples - config.resume_point.start_sample
                sent = without_first(num_known, read_audio(requests, audio, request.hints))
                async with aclosing(session.run(with_observers(sent, measured.on_audio, keep))) as updates:
                    async for update in updates:
                        measured.on_update(update)
                        for response in responses.on_update(update):
                            yield response
            yield responses.last()

    async def _streaming_session(
        self, config: pb.StreamingRecognitionConfig, request: SessionRequest
    ) -> Session:
        """Create the session of a stream; it opens when it runs."""
        point = config.resume_point
        weights = codec.resume_point_weights(point) if config.HasField("resume_point") else ""
        target = await self._target_for(request, weights, in_outages=config.continue_unverified)
        return self._session(
            request,
            target,
            resume_point=read_resume_point(config, target),
            continue_unverified=config.continue_unverified,
        )

    def _session(self, request: SessionRequest, target: TargetDescription, **more: Any) -> Session:
        timeout_s = self._config.resume_timeout_s
        return Session(
            request,
            self._transcriber,
            target,
            self._drafting,
            self.metrics,
            resume_timeout_s=timeout_s,
            **more,
        )

    async def _target_for(
        self, request: SessionRequest, weights_digest: str = "", *, in_outages: bool = False
    ) -> TargetDescription:
        """Return a target for a session; ``weights_digest`` is of the session that it continues.

        A second round follows if the first one's target has shown which vocabulary the draft can use.
        """
        placement = self._drafting.placement if self._drafting and request.length.mode.drafts else None
        ask = partial(
            described, self._transcriber, retry_timeout_s=self._config.resume_timeout_s, in_outages=in_outages
        )
        if placement is None:
            return await ask(Requirements("", weights_digest))
        while True:
            requirements = placement.requirements(weights_digest)
            target = await ask(requirements)
            if placement.choose(target):
                return target
            if requirements == placement.requirements(weights_digest):
                raise PairMismatch(placement.why_not(target))

    def _model_of(self, session: Session, request: SessionRequest) -> pb.ModelInfo:
        """Describe how a session runs now; the mode is target-only once its draft has failed."""
        length = DraftLength(Mode.TARGET_ONLY) if session.has_lost_draft else request.length
        return self._model_info(session.target, length, is_lossy=request.options.is_lossy)

    def _model_info(
        self, target: TargetDescription, length: DraftLength, *, is_lossy: bool = False
    ) -> pb.ModelInfo:
        return pb.ModelInfo(
            target=target.model,
            draft=self._drafting.name if self._drafting and length.mode.drafts else "",
            target_weights_digest=target.weights_digest,
            mode=codec.mode_to_proto(length.mode),
            gamma=length.gamma or 0,
            is_lossy=is_lossy,
        )

    def _mel_bins(self, target: TargetDescription) -> set[int]:
        """Return the numbers of mel bins of all models that a session may use."""
        of_draft = self._drafting.num_mel_bins if self._drafting else None
        return {*MEL_BINS, target.num_mel_bins} | ({of_draft} if of_draft else set())


async def described(
    transcriber: Transcriber,
    requirements: Requirements,
    retry_timeout_s: float,
    *,
    in_outages: bool = False,
) -> TargetDescription:
    """Return a target on which a session may open.

    If a target is lost while it is asked, targets are asked again for ``retry_timeout_s`` seconds. With
    ``in_outages`` the last description is enough if no target can be reached.
    """
    failover = Failover(retry_timeout_s)
    while (known := transcriber.known(requirements)) is None:
        try:
            return await transcriber.describe(requirements)
        except GONE as error:
            if in_outages and (last := transcriber.known(requirements, in_outages=True)) is not None:
                return last
            if not was_there(error):
                raise
            await failover.wait(error)
    return known
