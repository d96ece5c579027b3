"""The gRPC face of the draft server: recognise recordings and live audio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from specwhisper import __version__
from specwhisper.audio.canonical import CanonicalStream
from specwhisper.audio.decode import MAX_PCM_BYTES_PER_S, decode_bytes
from specwhisper.audio.scan import MEL_BINS
from specwhisper.audio.source import AudioSource
from specwhisper.errors import (
    InvalidRequest,
    MessageTooLarge,
    PairMismatch,
    ServerDraining,
    ServerFull,
    TargetUnavailable,
    UnsupportedOption,
    check_between,
)
from specwhisper.rpc.access import caller
from specwhisper.rpc.calls import admitted_by
from specwhisper.rpc.places import Places
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.transcriber import TargetDescription, Transcriber
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper.wire import codec
from specwhisper.wire.codec import statistics_to_proto
from specwhisper.wire.v1 import decoding_pb2, transcription_pb2_grpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.versions import CLIENT, Protocols, check_protocol
from specwhisper_draft_server.access_log import Observed
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafting import Drafting
from specwhisper_draft_server.heartbeats import with_heartbeats
from specwhisper_draft_server.idle_timeout import unless_idle
from specwhisper_draft_server.link.descriptions import Descriptions
from specwhisper_draft_server.link.needs import Needs
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.parity_check import ParityChecker
from specwhisper_draft_server.replies import (
    duration,
    final_result,
    interim_results,
    speech_event,
    spoken_language,
)
from specwhisper_draft_server.resume_points import ResumePoints, read_checkpoint
from specwhisper_draft_server.sessions.live_session import LiveSession
from specwhisper_draft_server.sessions.merged_transcript import MergedTranscript
from specwhisper_draft_server.sessions.session import TELL_SAMPLES, Session, SessionRequest

MAX_ADDED_LATENCY_MS = 2_000
MAX_PIECE_BYTES = 64 * 1024  # of streamed audio: resampled in the event loop, it must not take long


class TranscriptionService(transcription_pb2_grpc.TranscriptionServicer):
    """Serves clients with one draft model and a target."""

    def __init__(
        self,
        config: DraftConfig,
        transcriber: Transcriber,
        drafting: Drafting | None,
        metrics: DraftMetrics,
        auditor: ParityChecker,
    ) -> None:
        self._auditor = auditor
        self.metrics = metrics
        self._config = config
        self._transcriber = transcriber
        self._drafting = drafting
        self._descriptions = Descriptions(transcriber, config.resume_timeout_s)
        self._places = Places("The draft server", config.max_sessions, config.serving.max_sessions_per_token)

    @property
    def num_sessions(self) -> int:
        """Transcriptions that are under way."""
        return self._places.num_taken

    @property
    def num_free_places(self) -> int:
        """Transcriptions that it would still take, of callers that may have as many."""
        return max(0, self._places.max_sessions - self._places.num_taken)

    @property
    def idle_timeout_s(self) -> float:
        """How long the client of a stream may send nothing."""
        return self._config.serving.idle_timeout_s

    @property
    def num_free_draft_slots(self) -> int | None:
        """Slots of the draft model; ``None`` without one, or before it is placed."""
        return self._drafting.num_free_slots if self._drafting else None

    async def check_health(self) -> None:
        """Return where the engines of this process answer; raise or hang where one hangs."""
        if self._drafting is not None:
            self._drafting.check_health()
        await self._transcriber.check_health()

    async def GetModel(self, request: pb.GetModelRequest, context: Any) -> pb.GetModelResponse:
        """Name the pair and what it understands."""
        target = await self._descriptions.ask()
        return pb.GetModelResponse(
            model=self._model_info(target, self._config.length(self._config.mode, None)),
            language_codes=sorted(target.vocabulary.languages) or ["en"],
            max_message_bytes=self._config.serving.max_message_bytes,
            max_sessions=self._config.max_sessions,
            software_version=__version__,
            log_mel_max_bins=sorted(self._mel_bins(target)),
            protocol_version=CLIENT.version,
            oldest_protocol_version=CLIENT.oldest,
        )

    def place(self) -> AbstractContextManager[None]:
        """Take a place for the session of the call that is answered; :class:`ServerFull` if there is none."""
        self.check_room()
        return self._places.taken(caller.get())

    def check_room(self) -> None:
        """Raise :class:`ServerFull` where there is no place for the call that is answered.

        Asked before anything of a call is read, which takes longer than all the rest of a refusal. So it is
        counted as a session of the mode that is the server's own.
        """
        try:
            self._places.check(caller.get())
        except ServerFull as error:
            self.metrics.count_session(self._config.mode, error)
            raise

    @admitted_by(place)
    async def Recognize(self, request: pb.RecognizeRequest, context: Any) -> pb.RecognizeResponse:
        """Transcribe a whole recording."""
        return await self.recognize(request.config, request.audio)

    async def recognize(self, config: pb.RecognitionConfig, audio: bytes) -> pb.RecognizeResponse:
        """Transcribe a whole recording for a call that has a place."""
        wanted = self._session_request(config)
        if wanted.options.live is not None:
            raise InvalidRequest("A recording that is sent whole is not live: leave decoding.live out.")
        with self.metrics.session(wanted.length.mode):
            target, _ = await self._target_for(wanted)
            source = await AudioSource.open(partial(self._decode, config, audio))
            if not source.fits_one_window:
                maxima = await source.log_mel_max(self._mel_bins(target))
                wanted = replace(wanted, options=replace(wanted.options, log_mel_max=maxima))
            response = pb.RecognizeResponse()
            session = Session(wanted, self._transcriber, target, self._drafting)
            observed = Observed(self.metrics)
            heard = observed.hear(source.pieces())
            running = self._auditor.run(session, wanted, target, heard)
            async with aclosing(observed.follow(session, running)) as updates:
                async for segments in updates:
                    response.results.extend(
                        final_result(segment, session.builder.language) for segment in segments
                    )
        response.model.CopyFrom(self._model_of(session, wanted))
        response.language.CopyFrom(spoken_language(session.builder))
        response.audio_duration.CopyFrom(duration(session.builder.num_samples / SAMPLE_RATE))
        response.statistics.CopyFrom(statistics_to_proto(session.builder.statistics))
        return response

    async def StreamingRecognize(
        self, requests: AsyncIterator[pb.StreamingRecognizeRequest], context: Any
    ) -> AsyncIterator[pb.StreamingRecognizeResponse]:
        """Transcribe while audio arrives."""
        self.check_room()
        async with aclosing(unless_idle(self.transcribe, requests, self.idle_timeout_s)) as responses:
            async for response in responses:
                yield response

    async def transcribe(
        self, requests: AsyncIterator[pb.StreamingRecognizeRequest]
    ) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
        """Answer a stream, however long its client takes; with signs of life where it asks for them."""
        config = await _streaming_config(requests)
        answers = self._answer(config, requests)
        async with aclosing(with_heartbeats(answers) if config.with_heartbeats else answers) as responses:
            async for response in responses:
                yield response

    async def _answer(
        self, config: pb.StreamingRecognitionConfig, requests: AsyncIterator[pb.StreamingRecognizeRequest]
    ) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
        """Answer what follows behind a stream's config."""
        wanted = self._session_request(config.config)
        is_live = wanted.options.live is not None
        if is_live:
            wanted = replace(wanted, endpointing=codec.endpointing_from_proto(config.endpointing))
        elif config.HasField("endpointing") or config.continue_unverified:
            raise InvalidRequest(
                "endpointing and continue_unverified are for live audio: set decoding.live too."
            )
        if is_live and (config.with_checkpoints or config.checkpoint):
            raise InvalidRequest("ResumePoints are of recordings: live audio goes on from a position.")
        check_between("added_latency_ms", config.added_latency_ms, 0, MAX_ADDED_LATENCY_MS)
        wanted = replace(wanted, added_latency_ms=config.added_latency_ms)
        if config.config.encoding != pb.AUDIO_ENCODING_LINEAR16:
            raise InvalidRequest(
                "Streamed audio must be LINEAR16: set the encoding, or send a file to Recognize."
            )
        audio = CanonicalStream(config.config.sample_rate_hertz, config.config.audio_channel_count or 1)
        with self.metrics.session(wanted.length.mode), self._places.taken(caller.get()):
            session: Session | LiveSession
            weights = _weights_of(config)
            target, lost = await self._target_for(wanted, weights, in_outages=config.continue_unverified)
            if wanted.options.live is None:
                session = Session(
                    wanted,
                    self._transcriber,
                    target,
                    self._drafting,
                    checkpoint=read_checkpoint(config, target),
                )
            else:
                session = LiveSession(
                    wanted,
                    self._transcriber,
                    target,
                    self._drafting,
                    patience_s=self._config.resume_timeout_s,
                    goes_on_alone=config.continue_unverified,
                    lost=lost,
                    same_weights=bool(weights),
                    metrics=self.metrics,
                )
            model: pb.ModelInfo | None = None  # as the client knows it
            interim: list[pb.SpeechRecognitionResult] = []
            told_position = 0
            checkpoints = None
            if config.with_checkpoints and isinstance(session, Session):
                checkpoints = ResumePoints(session)
            live = wanted.options.live
            observed = Observed(self.metrics, live.position.start_sample if live is not None else 0)
            heard = observed.hear(_canonical_stream(requests, audio))
            if isinstance(session, Session) and not config.checkpoint:
                running = self._auditor.run(session, wanted, target, heard)
            else:
                running = session.run(heard)
            async with aclosing(observed.follow(session, running)) as updates:
                async for segments in updates:
                    if model is None:  # who writes the text is known once a target has taken the session
                        model = self._model_of(session, wanted)
                        yield pb.StreamingRecognizeResponse(model=model, heartbeat=config.with_heartbeats)
                    # Put together before anything is sent: what happens meanwhile is told the next time.
                    events, session.speech_events = session.speech_events, []
                    finals = [final_result(segment, session.builder.language) for segment in segments]
                    before, interim = interim, []
                    if config.interim_results:
                        interim = interim_results(session.builder)
                    update = self._update(session, [*finals, *interim])
                    before_model, model = model, self._model_of(session, wanted)
                    if model != before_model:
                        update.model.CopyFrom(model)
                    if checkpoints is not None:
                        checkpoints.add(update, has_finals=bool(finals))
                    for event in events:
                        yield speech_event(event)
                    # In silence, a client learns now and then what it need not keep.
                    position = update.position.start_sample // TELL_SAMPLES
                    is_news = (
                        finals
                        or interim != before
                        or update.steps
                        or update.HasField("checkpoint")
                        or update.HasField("model")
                    )
                    if is_news or position > told_position:
                        told_position = position
                        yield update
            last = self._update(session, [])
            last.language.CopyFrom(spoken_language(session.builder))
            if (last_model := self._model_of(session, wanted)) != model:
                last.model.CopyFrom(last_model)
            yield last

    async def _target_for(
        self, wanted: SessionRequest, weights_digest: str = "", *, in_outages: bool = False
    ) -> tuple[TargetDescription, TargetUnavailable | ServerDraining | None]:
        """Return what a target is that a session may open on; in an outage, with why there is none now.

        Parameters
        ----------
        weights_digest : those that it began on elsewhere.
        """
        drafting = self._drafting if wanted.length.mode.drafts else None
        lost = None
        while True:
            needs = Needs("", weights_digest) if drafting is None else drafting.needs(weights_digest)
            if in_outages:
                target, lost = await self._descriptions.in_outages(needs)
            else:
                target = await self._descriptions.for_session(needs)
            if drafting is None or drafting.set_up_for(target):
                return target, lost
            # It has turned out meanwhile which vocabulary the draft speaks, or that it cannot speak this one.
            if needs == drafting.needs(weights_digest):
                raise PairMismatch(drafting.why_not(target))

    def _session_request(self, config: pb.RecognitionConfig) -> SessionRequest:
        """Read what a client asks for; what it leaves open is this server's setting."""
        theirs = Protocols(config.protocol_version, config.oldest_protocol_version)
        if theirs.version:  # else the client does not say
            check_protocol(
                "The client", theirs, config.software_version, here="this draft server", own=CLIENT
            )
        mode = (
            self._config.mode
            if config.mode == decoding_pb2.MODE_UNSPECIFIED
            else codec.mode_from_proto(config.mode)
        )
        if mode.drafts and self._drafting is None:
            raise UnsupportedOption(
                f"This server runs without a draft model (--mode target-only): mode {mode} is not offered."
            )
        options = codec.decoding_options_from_proto(config.decoding)
        options = replace(
            options,
            language=config.language_code.partition("-")[0].lower() or options.language,
            word_timestamps=options.word_timestamps or config.enable_word_time_offsets,
        )
        return SessionRequest(options, self._config.length(mode, config.gamma or None))

    def _decode(self, config: pb.RecognitionConfig, audio: bytes) -> Iterator[bytes]:
        if config.encoding == pb.AUDIO_ENCODING_LINEAR16:
            stream = CanonicalStream(config.sample_rate_hertz, config.audio_channel_count or 1)
            for start in range(0, len(audio), MAX_PIECE_BYTES):
                yield stream.push(audio[start : start + MAX_PIECE_BYTES])
            yield stream.finish()
        else:
            max_pcm_bytes = int(self._config.max_audio_s * MAX_PCM_BYTES_PER_S)
            yield from decode_bytes(audio, self._config.max_audio_s, max_pcm_bytes)

    def _model_of(self, session: Session | LiveSession, wanted: SessionRequest) -> pb.ModelInfo:
        """Describe how a session runs now: target-only where its draft has failed."""
        length = DraftLength.of(Mode.TARGET_ONLY, None) if session.has_lost_draft else wanted.length
        return self._model_info(session.target, length, is_lossy=wanted.options.is_lossy)

    def _model_info(
        self, target: TargetDescription, length: DraftLength, *, is_lossy: bool = False
    ) -> pb.ModelInfo:
        return pb.ModelInfo(
            target_model=target.model,
            draft_model=self._drafting.name if self._drafting and length.mode.drafts else "",
            target_weights_digest=target.weights_digest,
            mode=codec.mode_to_proto(length.mode),
            gamma=0 if length.is_adaptive else length.gamma,
            is_lossy=is_lossy,
        )

    def _mel_bins(self, target: TargetDescription) -> set[int]:
        """Return all numbers of mel bins that a session may meet, on whichever target it opens."""
        draft = {self._drafting.num_mel_bins} if self._drafting else set()
        return {*MEL_BINS, target.num_mel_bins} | draft

    @staticmethod
    def _update(
        session: Session | LiveSession, results: Iterable[pb.SpeechRecognitionResult]
    ) -> pb.StreamingRecognizeResponse:
        builder = session.builder
        update = pb.StreamingRecognizeResponse(
            results=results,
            statistics=statistics_to_proto(builder.statistics),
            audio_received=duration(builder.num_samples / SAMPLE_RATE),
        )
        if isinstance(builder, LiveTranscript | MergedTranscript):
            steps, builder.steps = builder.steps, []
            update.steps.extend(
                pb.DecodedStep(
                    start_sample=step.start_sample, end_sample=step.end_sample, num_passes=step.num_forwards
                )
                for step in steps
            )
            update.position.CopyFrom(codec.live_position_to_proto(builder.position))
        return update


async def _streaming_config(
    requests: AsyncIterator[pb.StreamingRecognizeRequest],
) -> pb.StreamingRecognitionConfig:
    async for first in requests:
        if first.WhichOneof("streaming_request") == "streaming_config":
            return first.streaming_config
        break
    raise InvalidRequest("A stream begins with streaming_config; this one began with something else.")


def _weights_of(config: pb.StreamingRecognitionConfig) -> str:
    """Return the weights that a stream began on elsewhere; empty where it begins here."""
    if config.checkpoint:
        return codec.checkpoint_weights(config.checkpoint)
    return config.target_weights_digest


async def _canonical_stream(
    requests: AsyncIterator[pb.StreamingRecognizeRequest], audio: CanonicalStream
) -> AsyncIterator[bytes]:
    async for request in requests:
        if request.WhichOneof("streaming_request") != "audio_content":
            raise InvalidRequest("After its streaming_config a stream takes audio_content only.")
        if len(request.audio_content) > MAX_PIECE_BYTES:
            raise MessageTooLarge(
                f"A piece of audio has {len(request.audio_content)} bytes: a stream takes at most "
                f"{MAX_PIECE_BYTES} in a message."
            )
        yield audio.push(request.audio_content)
    yield audio.finish()
