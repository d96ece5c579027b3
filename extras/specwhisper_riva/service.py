"""Riva's gRPC service: calls our own in this process, and converts its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial
from typing import Any

from riva.client.proto import riva_asr_pb2

from specwhisper.audio.canonical import CanonicalStream
from specwhisper.audio.turns import Turn, in_turn
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.live import LiveOptions
from specwhisper.rpc.calls import admitted_by
from specwhisper.settings.model_names import ModelNames
from specwhisper.tasks import beside
from specwhisper.transcription.speakers import SpeakerModels, Turns, UtteranceSpeakers
from specwhisper.types import EndUtterance
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.requests import (
    WithIdleTimeout,
    canonical_stream,
    cut,
    decode_recording,
    first_of,
)
from specwhisper_draft_server.service import TranscriptionService
from specwhisper_riva.replies import (
    LiveReplies,
    config_response,
    recognize_response,
    set_live_speakers,
    set_speakers,
)
from specwhisper_riva.requests import (
    StreamedAudio,
    endpointing,
    recognition_config,
    set_samples,
    whole_audio,
    whole_config,
)
from specwhisper_riva.settings import RivaSettings

WARNING = "specwhisper-warning"  # in the trailing metadata: what is missing of the recording


class RivaService:
    """Serves Riva's clients with our own service; it has no sessions of its own.

    ``speakers`` is ``None`` if finding them is not offered.
    """

    def __init__(
        self,
        service: TranscriptionService,
        settings: RivaSettings,
        speakers: SpeakerModels | None,
        max_audio_s: float,
    ) -> None:
        self._service = service
        self._speakers = speakers
        self._max_audio_s = max_audio_s
        self._names = ModelNames(
            settings.served_model_names, is_strict=settings.strict_model_names, target=self._target_name
        )

    async def GetRivaSpeechRecognitionConfig(
        self, request: riva_asr_pb2.RivaSpeechRecognitionConfigRequest, context: Any
    ) -> riva_asr_pb2.RivaSpeechRecognitionConfigResponse:
        """List the names of the target, or the requested one, with its languages."""
        if request.model_name:
            await self._names.check(request.model_name)
        names = (request.model_name,) if request.model_name else await self._names.served()
        return config_response(await self._service.GetModel(pb.GetModelRequest(), context), names)

    @admitted_by(lambda self: self._service.admit())
    async def Recognize(
        self, request: riva_asr_pb2.RecognizeRequest, context: Any
    ) -> riva_asr_pb2.RecognizeResponse:
        await self._check_model(request.config.model)
        config, audio = whole_config(request), await in_turn(Turn(), whole_audio, request)
        async with self._beside(request, config, audio) as turns:
            ours = await self._service.recognize(config, audio)
            context.set_trailing_metadata(tuple((WARNING, sentence) for sentence in ours.warnings))
            response = recognize_response(ours)
            if turns is not None:
                await asyncio.to_thread(set_speakers, response, await turns)
        if request.HasField("id"):
            response.id.CopyFrom(request.id)
        return response

    def _beside(
        self, request: riva_asr_pb2.RecognizeRequest, config: pb.RecognitionConfig, audio: bytes
    ) -> AbstractAsyncContextManager[Turns | None]:
        """Return what finds the speakers during a block, if the request asks for them."""
        if (speakers := self._speakers_for(request.config)) is None:
            return nullcontext()
        return beside(partial(speakers.turns_of, partial(decode_recording, config, audio, self._max_audio_s)))

    def _speakers_for(self, config: riva_asr_pb2.RecognitionConfig) -> SpeakerModels | None:
        if not config.diarization_config.enable_speaker_diarization:
            return None
        if self._speakers is None:
            raise UnsupportedOption(
                "This server has no models for speakers: leave enable_speaker_diarization out, or start it "
                "with --speaker-models."
            )
        return self._speakers

    async def StreamingRecognize(
        self, requests: AsyncIterator[riva_asr_pb2.StreamingRecognizeRequest], context: Any
    ) -> AsyncIterator[riva_asr_pb2.StreamingRecognizeResponse]:
        self._service.check_room()
        timed = WithIdleTimeout(requests, self._service.idle_timeout_s)
        with timed.error_at_end():
            async with aclosing(self._transcribe(aiter(timed))) as responses:
                async for response in responses:
                    yield response

    async def _transcribe(
        self, requests: AsyncIterator[riva_asr_pb2.StreamingRecognizeRequest]
    ) -> AsyncGenerator[riva_asr_pb2.StreamingRecognizeResponse]:
        first = await first_of(requests)
        config = first.streaming_config
        await self._check_model(config.config.model)
        replies = LiveReplies(interim_results=config.interim_results)
        speakers = None
        if (models := self._speakers_for(config.config)) is not None:
            max_speakers = config.config.diarization_config.max_speaker_count or None
            speakers = models.live(max_speakers=max_speakers)
        async with aclosing(_our_requests(config, requests, replies, speakers)) as ours:
            settings = (await first_of(ours)).streaming_config
            async with aclosing(self._service.transcribe(settings, ours)) as responses:
                async for response in responses:
                    for reply in replies.take(response):
                        if speakers is not None:
                            await set_live_speakers(reply, speakers)
                        if first.HasField("id"):
                            reply.id.CopyFrom(first.id)
                        yield reply

    async def _target_name(self) -> str:
        return (await self._service.GetModel(pb.GetModelRequest(), None)).model.target

    async def _check_model(self, name: str) -> None:
        """See :meth:`ModelNames.tolerate`; no name is the target's."""
        if name:
            await self._names.tolerate(name)


async def _our_requests(
    config: riva_asr_pb2.StreamingRecognitionConfig,
    requests: AsyncIterator[riva_asr_pb2.StreamingRecognizeRequest],
    replies: LiveReplies,
    speakers: UtteranceSpeakers | None,
) -> AsyncGenerator[pb.StreamingRecognizeRequest]:
    """Yield requests of our own API: settings once the format is known, then samples.

    The samples are appended to ``speakers`` too, and ``replies`` expects the ends that the client asks for.
    """
    ours = pb.StreamingRecognitionConfig(
        config=recognition_config(config.config, LiveOptions()),
        interim_results=config.interim_results,
        endpointing=endpointing(config.config),
    )
    audio = StreamedAudio(config.config)
    canonical: CanonicalStream | None = None
    async with aclosing(_decoded(requests, audio)) as pieces:
        async for pcm in pieces:
            if isinstance(pcm, EndUtterance):
                if canonical is not None:
                    replies.expect_end()
                    yield pb.StreamingRecognizeRequest(end_utterance=pb.EndUtterance())
                continue
            if canonical is None and audio.samples is not None:
                set_samples(ours.config, audio.samples)
                canonical = canonical_stream(ours.config)
                yield pb.StreamingRecognizeRequest(streaming_config=ours)
            for piece in cut(pcm):
                if speakers is not None and canonical is not None:
                    speakers.append(canonical.push(piece))
                yield pb.StreamingRecognizeRequest(audio_content=piece)


async def _decoded(
    requests: AsyncIterator[riva_asr_pb2.StreamingRecognizeRequest], audio: StreamedAudio
) -> AsyncGenerator[bytes | EndUtterance]:
    """Yield the audio as 16-bit samples, and where the client ends utterances."""
    async for request in requests:
        match request.WhichOneof("streaming_request"):
            case "audio_content":
                for piece in cut(request.audio_content):  # short pieces: they are decoded in the event loop
                    yield audio.push(piece)
            case "streaming_config":
                raise InvalidRequest("A stream takes one streaming_config, its first message.")
        if request.runtime_config.get("force_eou") == "true":
            yield EndUtterance()
    yield audio.finish()
