"""``/v1/audio``: recordings to text."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from openai.types.audio import Transcription as TranscriptionReply
from openai.types.audio import TranscriptionVerbose, Translation, TranslationVerbose
from openai.types.audio.transcription_diarized import TranscriptionDiarized

from specwhisper.audio.decode import decode_file
from specwhisper.errors import InvalidAudio
from specwhisper.tasks import beside
from specwhisper.transcription.speakers import Turns
from specwhisper.transcription.transcription import Transcription
from specwhisper_client.file_transcription import FileTranscription
from specwhisper_gateway.audio.fields import REFERENCES, AudioFields, TranscriptionFields, TranslationFields
from specwhisper_gateway.audio.replies import EventStream, reply, transcript_events, with_speakers
from specwhisper_gateway.audio.uploads import Upload, errors_about, receive_upload
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.sockets import check_origin_without_keys
from specwhisper_gateway.state import admit, cancel_on_disconnect, gateway_of, within_time

WARNINGS = "Specwhisper-Warnings"  # what is missing of the recording, in a header

router = APIRouter(
    prefix="/v1/audio", tags=["Audio"], dependencies=[Depends(check_origin_without_keys), Depends(admit)]
)


Received = Annotated[Upload, Depends(receive_upload)]


def _form(fields: type[AudioFields]) -> dict[str, Any]:
    """Return the schema of a route's form, which FastAPI lacks because the form is read in pieces."""
    content = {"multipart/form-data": {"schema": fields.form_schema()}}
    return {"requestBody": {"required": True, "content": content}}


@router.post(
    "/transcriptions",
    openapi_extra=_form(TranscriptionFields),
    responses={
        200: {
            "model": TranscriptionReply | TranscriptionVerbose | TranscriptionDiarized,
            "description": "The transcript in the requested format, or a stream of events.",
            "content": {"text/plain": {}, "text/vtt": {}, "text/event-stream": {}},
        }
    },
)
async def transcriptions(request: Request, received: Received) -> Response:
    """Transcribe a recording in the language that is spoken."""
    fields = TranscriptionFields.read(received.fields)
    if not fields.stream:
        return await _answer(request, received, fields)
    async with within_time(request):
        transcription = await _begin(request, received, fields, interim_results=True)
        events = transcript_events(
            transcription,
            received,
            gateway_of(request).metrics,
            interim_results=fields.interim_results,
            beside=await _speakers(request, received, fields),
        )
        first = await cancel_on_disconnect(request, anext(events))
    return EventStream(first, events)


@router.post(
    "/translations",
    openapi_extra=_form(TranslationFields),
    responses={
        200: {
            "model": Translation | TranslationVerbose,
            "description": "The translation in the requested format.",
            "content": {"text/plain": {}, "text/vtt": {}},
        }
    },
)
async def translations(request: Request, received: Received) -> Response:
    """Translate a recording into English."""
    return await _answer(request, received, TranslationFields.read(received.fields))


async def _begin(
    request: Request, received: Upload, fields: AudioFields, *, interim_results: bool = False
) -> FileTranscription:
    """Return a transcription, which runs while its updates are read."""
    gateway, options = gateway_of(request), fields.options()
    await gateway.model_names.resolve(fields.model)
    param = "languages" if getattr(fields, "languages", ()) else "language"
    await gateway.check_languages(options, param)
    return gateway.client.stream_file(
        received.path,
        options,
        interim_results=interim_results,
        max_duration_s=gateway.config.max_audio_seconds,
    )


async def _answer(request: Request, received: Upload, fields: AudioFields) -> Response:
    with errors_about(received):
        async with within_time(request):
            beside = await _speakers(request, received, fields)
            transcription = await _begin(request, received, fields)
            transcript = await cancel_on_disconnect(request, _complete(transcription, beside))
    gateway_of(request).metrics.count_transcript(transcript)
    response = await asyncio.to_thread(reply, fields, transcript)
    if transcript.warnings:
        response.headers[WARNINGS] = received.without_path(" ".join(transcript.warnings))
    return response


async def _complete(
    transcription: FileTranscription, beside: AbstractAsyncContextManager[Turns | None]
) -> Transcription:
    async with beside as turns:
        async for _ in transcription:
            pass
        return await with_speakers(transcription.result, turns)


async def _speakers(
    request: Request, received: Upload, fields: AudioFields
) -> AbstractAsyncContextManager[Turns | None]:
    """Return what finds the speakers during a block, if the request asks for them."""
    if not isinstance(fields, TranscriptionFields) or not fields.has_speakers:
        return nullcontext()
    config = gateway_of(request).config
    if config.speakers is None:
        raise InvalidField(
            "response_format is diarized_json: this gateway has no models for speakers; its operator passes "
            "--speaker-models.",
            "response_format",
            "unsupported_value",
        )
    try:
        speakers = await config.speakers.knowing(fields.known_speakers())
    except InvalidAudio as error:
        raise InvalidField(str(error), REFERENCES) from error
    decode = partial(decode_file, received.path, config.max_audio_seconds, selection=fields.options())
    return beside(partial(speakers.turns_of, decode))
